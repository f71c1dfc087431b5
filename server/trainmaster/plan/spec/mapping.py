"""Writes docs/frameworks.md: where each field of the spec lands in each framework."""

from __future__ import annotations

from trainmaster.plan.fields.field_tree import Field, by_section
from trainmaster.plan.fields.place import Place
from trainmaster.plan.frameworks import FRAMEWORKS

_INTRODUCTION = """\
# Where the fields of a spec land in each framework

This page is generated from the records in `server/trainmaster/plan/frameworks/`.

One spec describes a training for any of four frameworks, or a program that is run as it is
(`script`; [any-program.md](any-program.md)). Each value lands in an argument of the
framework's own, or in the part of ours that acts on it beside the framework (prepare, the saver,
the supervisor). `litgpt.yaml` holds LitGPT's arguments, `training_args.yaml` those of Hugging Face
Trainer and TRL, `accelerate_config.yaml` and `ds_config.json` those of their launcher; they stand
in the run's folder, beside each attempt's `config.json`.

A dash means that the framework has no place for the field: a value other than the default is then
refused when planning, with `NOT_YET_SUPPORTED` and the reason that stands here. "only" lists the
values that are taken where not all are.
"""


def mapping_markdown() -> str:
    """The whole page; a table for each section."""
    return "\n".join([_INTRODUCTION, *(_table(*item) for item in by_section().items())])


def _table(section: str, members: list[Field]) -> str:
    head = [
        f"## {f'`{section}`' if section else 'The whole'}",
        "",
        f"| field | {' | '.join(FRAMEWORKS)} |",
        "|---" * (len(FRAMEWORKS) + 1) + "|",
    ]
    return "\n".join([*head, *map(_row, members)]) + "\n"


def _row(field: Field) -> str:
    cells = [_cell(record.place_of(field)) for record in FRAMEWORKS.values()]
    return f"| `{field.path}` | {' | '.join(cells)} |"


def _cell(place: Place) -> str:
    if not place.where:
        return f"— ({place.lacks})"
    if place.takes is None:
        return place.where
    return f"{place.where}; only {place.words}"
