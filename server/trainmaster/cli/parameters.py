"""Arguments and options that several commands share: the same words everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.completions import run_names

Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="The run's id, or its name if unique.", autocompletion=run_names
    ),
]
Spec = Annotated[str, typer.Argument(metavar="SPEC", help="Path of a spec, or its YAML text.")]
Host = Annotated[str | None, typer.Option("--host", help="Where to run, instead of the spec's.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Change a dotted field. Repeatable."),
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option("--idempotency-key", help="The same key again finds the first call's run."),
]
Cursor = Annotated[
    str | None, typer.Option("--cursor", help="From an earlier answer: continue after it.")
]
Toolsets = Annotated[
    str,
    typer.Option(
        "--toolsets",
        metavar="NAME,...",
        help="Toolsets (observe, plan, operate, provision) or personas (observer, planner, "
        "operator, renter); all by default.",
    ),
]
Pattern = Annotated[
    list[str] | None,
    typer.Option(
        "--pattern",
        metavar="LINE",
        help="Teach the log's lines: one of them with names for its numbers, as "
        "'it {step}/{target} L={loss} lr {lr}', or an expression with named groups. Repeatable.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as one line of JSON.")]


def pattern_text(patterns: list[str] | None) -> str | None:
    """The patterns of an option as services take them."""
    return "\n".join(patterns) if patterns else None


def split_commas(text: str) -> list[str]:
    """`a,b` as its parts, without empty ones."""
    return [part.strip() for part in text.split(",") if part.strip()]
