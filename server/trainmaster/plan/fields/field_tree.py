"""Walks the spec's fields: by path, all of them, and what each of them accepts."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from trainmaster.plan.fields.annotations import (
    BELOW_ONE,
    LARGEST,
    Accepts,
    Annotation,
    Changes,
    Keeps,
    Section,
    annotation_of,
)
from trainmaster.plan.fields.document import TrainingSpec

_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    type(None): "null",
}


# What the resolved configuration holds beside the spec's fields; evaluations stay comparable.
RESOLVED_ONLY: Mapping[str, Changes] = {
    "batch.accumulation": "box",
    "checkpoint.every_is_auto": "box",
    "eval.batch_size": "never",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the spec; `path` writes list items as `[]`: `data.sources[].name`."""

    path: str
    info: FieldInfo
    annotation: Annotation

    @property
    def accepts(self) -> str:
        return accepted(field_type(self.info))

    @property
    def default(self) -> Any:
        """The default; `PydanticUndefined` for a required field."""
        return self.info.get_default(call_default_factory=True, validated_data={})


@cache
def all_fields() -> tuple[Field, ...]:
    """Every field of the spec, sections before their members, in the order of the spec."""
    return tuple(_fields_of(TrainingSpec, ""))


def by_section() -> dict[str, list[Field]]:
    """Every field under the path of the section that it stands in; the whole spec's is empty."""
    sections: dict[str, list[Field]] = {}
    for field in all_fields():
        sections.setdefault(field.path.rpartition(".")[0], []).append(field)
    return sections


@cache
def keeping(what: Keeps) -> tuple[str, ...]:
    """The fields whose change on a resume keeps this."""
    return tuple(field.path for field in all_fields() if field.annotation.keeps == what)


@cache
def fixed_sections() -> frozenset[str]:
    """The fields of the whole spec of which no part may change once the run exists."""
    may_change = {
        re.split(r"[.\[]", field.path, maxsplit=1)[0]
        for field in all_fields()
        if field.annotation.changes != "never"
    }
    return frozenset(TrainingSpec.model_fields) - may_change


def changes_of(path: str) -> Changes | None:
    """Who may change the field at a dotted path of the resolved config; None if there is none.

    Items of lists and mappings go by the field that holds them, unless they are sections:
    `env.NCCL_DEBUG` is `env`, `data.sources.main.weight` is `data.sources[].weight`.
    """
    section: type[Section] | None = TrainingSpec
    changes: Changes | None = None
    at_item = False
    for part in path.replace("[", ".").replace("]", "").split("."):
        if section is None:
            break
        info = section.model_fields.get(part)
        if info is None and not at_item:
            return None
        # Other parts are names or numbers of list items (names may hold dots).
        if info is not None:
            changes = annotation_of(info).changes
            section = section_in(field_type(info))
            at_item = _holds_list(info)
    return changes


def field_type(info: FieldInfo) -> Any:
    """A field's type with the validators and limits that pydantic keeps apart from it."""
    if not info.metadata:
        return info.annotation
    return Annotated[(info.annotation, *info.metadata)]


def members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the type alone."""
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(part for member in get_args(annotation) for part in members(member))
    return (annotation,)


def bare(annotation: Any) -> Any:
    """A type without the metadata of `Annotated`."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def section_in(annotation: Any) -> type[Section] | None:
    """The section that a field's type holds, directly, as an alternative or in a list."""
    for member in members(annotation):
        kind = bare(member)
        if isinstance(kind, type) and issubclass(kind, Section):
            return kind
        if get_origin(kind) is list:
            return section_in(get_args(kind)[0])
    return None


def accepted(annotation: Any) -> str:
    """What a type accepts, in words."""
    described: list[str] = []
    for member in members(annotation):
        words = _accepted_member(member)
        if words not in described and words != "null":
            described.append(words)
    if any(bare(member) is type(None) for member in members(annotation)):
        described.append("null")
    if len(described) == 1:
        return described[0]
    return ", ".join(described[:-1]) + " or " + described[-1]


def nearest(name: str, names: Iterator[str] | list[str]) -> str | None:
    """The known name that `name` was probably meant to be."""
    matches = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return matches[0] if matches else None


def _fields_of(model: type[Section], prefix: str) -> Iterator[Field]:
    for name, info in model.model_fields.items():
        path = f"{prefix}{name}"
        yield Field(path, info, annotation_of(info))
        section = section_in(field_type(info))
        if section is not None:
            yield from _fields_of(section, f"{path}[]." if _holds_list(info) else f"{path}.")


def _holds_list(info: FieldInfo) -> bool:
    return any(get_origin(bare(member)) is list for member in members(info.annotation))


def _accepted_member(member: Any) -> str:
    metadata = get_args(member)[1:] if get_origin(member) is Annotated else ()
    for item in metadata:
        if isinstance(item, Accepts):
            return item.words
    kind = bare(member)
    origin = get_origin(kind)
    if origin is Literal:
        return " | ".join(str(value) for value in get_args(kind))
    if origin is list:
        return f"a list, each item {accepted(get_args(kind)[0])}"
    if origin is dict:
        value = get_args(kind)[1]
        return "a mapping" if value is Any else f"a mapping, each value {accepted(value)}"
    if isinstance(kind, type) and issubclass(kind, Section):
        return "a mapping with " + ", ".join(kind.model_fields)
    return " ".join([_WORDS[kind], *_limits(metadata)])


def _limits(metadata: tuple[Any, ...]) -> list[str]:
    limits = []
    for item in metadata:
        if isinstance(item, Ge):
            limits.append(f">= {item.ge:,}")
        elif isinstance(item, Gt):
            limits.append(f"> {item.gt:,}")
        elif isinstance(item, Le):
            limits.append(_at_most(item))
    return [" and ".join(limits)] if limits else []


def _at_most(item: Le) -> str:
    if item.le == BELOW_ONE:
        return "< 1"
    return "<= 1e15" if item.le == LARGEST else f"<= {item.le:,}"
