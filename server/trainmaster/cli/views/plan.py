"""What people see of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainer_runtime.core.protocol.figures import (
    gib_text,
    number_text,
    share_text,
    spoken_duration,
    usd_text,
)
from trainmaster.answers.runs import PlanAnswer, RenderAnswer
from trainmaster.cli.format import setting
from trainmaster.cli.views.blocks import Block, Grid, view


@view.register
def _(answer: PlanAnswer) -> list[Block]:
    if answer.fields is not None:
        return [f"What {answer.name} takes", *answer.fields, f"Next: {answer.next_step}"]
    if answer.targets is not None:
        return _compared(answer)
    decisions = [
        (item.field, setting(item.value), item.reason or "") for item in answer.decisions or ()
    ]
    return [
        f"Plan for {answer.name} on {answer.host}",
        Grid(("field", "value", "reason"), decisions),
        *_curriculum(answer.curriculum),
        _estimate_grid(answer.estimates or {}),
        *_gpu(answer.gpu),
        *(f"Warning: {warning}" for warning in answer.warnings or ()),
        *([f"Unattended: {answer.unattended}"] if answer.unattended else []),
        *([f"Next: {answer.next_step}"] if answer.next_step else []),
    ]


@view.register
def _(answer: RenderAnswer) -> list[Block]:
    return [
        f"{answer.name} in {answer.folder}: {', '.join(answer.files)}",
        *(f"Warning: {warning}" for warning in answer.warnings or ()),
        f"Next: {answer.next_step}",
    ]


def _compared(answer: PlanAnswer) -> list[Block]:
    """A row for each machine, then what would make the spec fit where it doesn't."""
    rows = [
        (
            row.on,
            "no" if not row.fits else "short" if row.problem else "yes",
            row.strategy or "",
            _cell(row.micro_batch),
            "" if row.memory_gib is None else gib_text(row.memory_gib),
            "" if row.tokens_per_s is None else number_text(row.tokens_per_s),
            "" if row.hours is None else _hours(row.hours),
            "" if row.usd is None else usd_text(row.usd),
            row.best or "",
        )
        for row in answer.targets or ()
    ]
    names = ("on", "fits", "strategy", "micro-batch", "memory", "tokens a second", "time", "cost")
    lacking = [
        f"{row.on}: {row.problem}{_would_fit(row.would_fit)}"
        for row in answer.targets or ()
        if row.problem is not None
    ]
    return [
        f"Plans for {answer.name}",
        Grid((*names, ""), rows),
        *lacking,
        *(f"Warning: {warning}" for warning in answer.warnings or ()),
        f"Next: {answer.next_step}",
    ]


def _would_fit(changes: Sequence[str] | None) -> str:
    return f" Would fit: {'; '.join(changes)}." if changes else ""


def _curriculum(table: Mapping[str, Any] | None) -> list[Block]:
    """The phases as a table, and under it rate and mix over the steps."""
    if table is None:
        return []
    columns = {name: held for name, held in table.items() if name != "picture"}
    rows = [tuple(map(_cell, row)) for row in zip(*columns.values(), strict=True)]
    names = tuple(name.replace("_", " ") for name in columns)
    return [Grid(names, rows), Grid(("over the steps", ""), list(table["picture"].items()))]


def _cell(value: object) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _estimate_grid(estimates: Mapping[str, Any]) -> Grid:
    rows = _estimates(estimates)
    if "hours" not in estimates:
        rows.append(("time", "no comparable run yet: known after the first steps", ""))
    if any(row[2] for row in rows):
        return Grid(("estimate", "value", "range"), rows)
    return Grid(("estimate", "value"), [row[:2] for row in rows])


def _estimates(estimates: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    ranges = estimates.get("ranges", {})
    rows = []
    for key, figure in estimates.items():
        if key != "ranges":
            name, said = _WORDS.get(key, (key.replace("_", " "), number_text))
            rows.append((name, said(figure), " to ".join(map(said, ranges.get(key, ())))))
    return rows


def _gpu(advice: Any) -> list[Block]:
    if not advice:
        return []
    if not isinstance(advice, dict):
        return [f"GPU: {advice}"]
    wanted = advice.get("recommended")
    planned = f"; planned for {advice['planned']}" if advice.get("planned") else ""
    reason = f" ({str(advice['reason']).rstrip('.')})" if advice.get("reason") else ""
    return [f"GPU: {'none needed' if wanted == 'none' else wanted}{reason}{planned}"]


def _hours(hours: object) -> str:
    seconds = 3600.0 * float(str(hours))
    return "under a second" if seconds < 1 else spoken_duration(seconds)


def _gib(size_gib: object) -> str:
    size = float(str(size_gib))
    return gib_text(size)


def _percent(share: object) -> str:
    return share_text(float(str(share)))


def _usd(amount: object) -> str:
    return usd_text(float(str(amount)))


_WORDS: dict[str, tuple[str, Callable[[object], str]]] = {
    "parameters": ("parameters", number_text),
    "trained_parameters": ("trained parameters", number_text),
    "memory_gib": ("memory", _gib),
    "memory_source": ("memory by", str),
    "disk_gib": ("disk", _gib),
    "tokens_per_s": ("tokens a second", number_text),
    "mfu": ("MFU", _percent),
    "hours": ("time", _hours),
    "usd": ("cost", _usd),
    "finish_at": ("finished at", str),
}
