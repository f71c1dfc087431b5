"""Writes docs/spec.md from the fields' annotations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_core import PydanticUndefined

from trainmaster.spec.annotations import Section
from trainmaster.spec.fields import Field, all_fields, field_type, section_in
from trainmaster.spec.support import BUILT, BUILT_BY_FRAMEWORK

_INTRODUCTION = """\
# The spec, field by field

This page is generated from the annotations in `server/trainmaster/spec/`:
`python -m trainmaster.spec > docs/spec.md` writes it anew.

A spec is one YAML mapping, read by the rules of YAML 1.2: `2e9` is a number, `24:00:00` and `no`
are texts. Anchors, aliases, tags and repeated keys are refused, and so is a text of more than 1 MB.
Unknown keys are refused, numbers in quotes are not taken for numbers.

Required are `name`, `framework`, `model`, `data.sources[].path`, and exactly one of `steps`,
`tokens` and `phases`. `--set a.b=value` changes one field; items of lists go by their name or
number (`data.sources.main.weight`, `data.sources[0].weight`), `null` takes a field back.

*Changes* says who may change a field once the run exists: nobody (never), the operator when
resuming (resume), or the box by itself, to recover (box, and by a resume too).
"""


def reference_markdown() -> str:
    """The whole page; each field once, under its section."""
    parts = [_INTRODUCTION]
    for section, members in _by_section().items():
        parts.append(f"## {f'`{section}`' if section else 'The whole'}\n")
        parts.extend(_described(field) for field in members)
    parts.append(_not_built())
    return "\n".join(parts)


def _by_section() -> dict[str, list[Field]]:
    sections: dict[str, list[Field]] = {}
    for field in all_fields():
        section = field.path.rpartition(".")[0]
        sections.setdefault(section, []).append(field)
    return sections


def _described(field: Field) -> str:
    lines = [f"### `{field.path}`", "", field.info.description or "", ""]
    lines += [f"- {name}: {value}" for name, value in _properties(field) if value]
    return "\n".join(lines) + "\n"


def _properties(field: Field) -> Iterator[tuple[str, str]]:
    yield "Takes", field.accepts
    yield "Default", _default(field)
    yield "Unit", field.annotation.unit
    yield "Changes", field.annotation.changes
    for framework, place in field.annotation.lands_in.items():
        yield f"In {framework}", place


def _default(field: Field) -> str:
    if field.info.is_required():
        return "none, it must be given"
    value: Any = field.info.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, Section):
        return "as its members say"
    if value is PydanticUndefined or (value is None and section_in(field_type(field.info))):
        return "null"
    if isinstance(value, bool) or value is None:
        return f"`{'null' if value is None else str(value).lower()}`"
    return f"`{value}`"


def _not_built() -> str:
    lines = [
        "## What is built so far",
        "",
        "Values of these fields other than the ones listed are refused with `NOT_YET_SUPPORTED`:",
        "",
    ]
    lines += [f"- `{built.path}`: {built.words}" for built in BUILT]
    for framework, table in BUILT_BY_FRAMEWORK.items():
        lines += ["", f"And for {framework}:", ""]
        lines += [f"- `{built.path}`: {built.words}" for built in table]
    return "\n".join(lines) + "\n"
