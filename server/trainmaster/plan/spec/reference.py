"""Writes docs/spec.md from the fields' annotations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_core import PydanticUndefined

from trainmaster.plan.fields.annotations import Section
from trainmaster.plan.fields.field_tree import Field, by_section, field_type, section_in
from trainmaster.plan.frameworks import FRAMEWORKS
from trainmaster.plan.frameworks.arguments import Argument

_INTRODUCTION = """\
# The spec, field by field

This page is generated from the annotations in `server/trainmaster/plan/fields/`:
`python -m trainmaster.plan.spec > docs/spec.md` writes it again.

A spec is one YAML mapping, read by the rules of YAML 1.2: `2e9` is a number, `24:00:00` and `no`
are texts. Anchors, aliases, tags and repeated keys are refused, and so is a text of more than 1 MB.
Unknown keys are refused, numbers in quotes are not taken for numbers.

Required are `name`, `framework`, `model`, `data.sources[].path`, and exactly one of `steps`,
`tokens` and `phases`; where a model is tuned, `method_args.epochs` may stand for them. With
`framework: script`, `script` is required instead of `model`, `data` and a length
([any-program.md](any-program.md)).
`--set a.b=value` changes one field; items of lists go by their name or number
(`data.sources.main.weight`, `data.sources[0].weight`), `null` takes a field back.

*Changes* says who may change a field once the run exists: nobody (never), the operator when
resuming (resume), or the supervisor, to recover (box, and by a resume too).

Where each field lands in each framework, and what a framework has no place for, is in
[frameworks.md](frameworks.md).
"""


def reference_markdown() -> str:
    """The whole page; each field once, under its section."""
    parts = [_INTRODUCTION]
    for section, members in by_section().items():
        parts.append(f"## {f'`{section}`' if section else 'The whole'}\n")
        parts.extend(_described(field) for field in members)
    parts.append(_method_arguments())
    return "\n".join(parts)


def _described(field: Field) -> str:
    lines = [f"### `{field.path}`", "", field.info.description or "", ""]
    lines += [f"- {name}: {value}" for name, value in _properties(field) if value]
    return "\n".join(lines) + "\n"


def _properties(field: Field) -> Iterator[tuple[str, str]]:
    yield "Takes", field.accepts
    yield "Default", _default(field)
    yield "Unit", field.annotation.unit
    yield "Changes", field.annotation.changes


def _default(field: Field) -> str:
    if field.info.is_required():
        return "none, it must be given"
    value: Any = field.default
    if isinstance(value, Section):
        return "as its members say"
    if value is PydanticUndefined or (value is None and section_in(field_type(field.info))):
        return "null"
    return _shown(value)


def _method_arguments() -> str:
    lines = [
        "## `method_args`, by method",
        "",
        "A dash stands where the framework has a default of its own, or planning decides.",
        "",
        "| method | argument | of | takes | default | what it does |",
        "|---|---|---|---|---|---|",
    ]
    rows: dict[tuple[str, str, Argument], list[str]] = {}
    for record in FRAMEWORKS.values():
        for method, arguments in record.arguments.items():
            for name, argument in arguments.items():
                rows.setdefault((method, name, argument), []).append(record.name)
    lines += [_argument_row(*row, of=", ".join(names)) for row, names in rows.items()]
    return "\n".join(lines) + "\n"


def _argument_row(method: str, name: str, argument: Argument, *, of: str) -> str:
    default = {None: "—", ...: "must be given"}.get(argument.default) or _shown(argument.default)
    takes = argument.words.replace("|", "\\|")
    return f"| {method} | `{name}` | {of} | {takes} | {default} | {argument.text} |"


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return f"`{'null' if value is None else str(value).lower()}`"
    return f"`{value}`"
