"""What people see of a run's status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from trainer_runtime.core.protocol.figures import (
    gib_text,
    number_text,
    share_text,
    size_text,
    spoken_duration,
    spoken_hours,
    usd_text,
)
from trainmaster.answers.status import (
    AttemptRow,
    Goodput,
    PhaseRow,
    PlannedFigure,
    RanksState,
    RunCost,
    Sample,
    StatusAnswer,
)
from trainmaster.backends import KAGGLE
from trainmaster.cli.format import preparing, setting
from trainmaster.cli.views.blocks import Block, Grid, figure, named, pairs, steps, view

# A step that came longer ago than this is worth a word.
_LONG_STEP_S = 60.0

_ENDS = {
    "end_of_text": "the text ended",
    "max_tokens": "the most asked for",
    "time": "cut at the time-out",
    "not_finite": "the model's output is not finite",
    "failed": "failed",
}


@view.register
def _(answer: StatusAnswer) -> list[Block]:
    reason = None if answer.reason == answer.state else answer.reason
    said = ": ".join(part for part in (reason, answer.untrusted_detail) if part)
    reason = f" ({said})" if said else ""
    remaining = "" if answer.eta_s is None else f", {spoken_duration(answer.eta_s)} to go"
    remaining += f", or less: ends {answer.may_end_early}" if answer.may_end_early else ""
    still = answer.step_age_s or 0.0
    remaining += f", the last one {spoken_duration(still)} ago" if still >= _LONG_STEP_S else ""
    unconfirmed = " (unconfirmed)" if answer.unconfirmed else ""
    return [
        f"{answer.run_id}: {answer.state}{reason} on {answer.host}, attempt {answer.attempt}",
        f"Step {steps(answer.step, answer.target_step)}{remaining}",
        *named("Phase", _phase(answer.phase)),
        *_session(answer),
        *named("Metrics", pairs(answer.metrics)),
        *named(
            "Nodes", ", ".join(f"{name} {state}" for name, state in (answer.nodes or {}).items())
        ),
        *named("Ranks", _ranks(answer.ranks)),
        *(f"Finding: {row.severity} {row.code} ({row.id})" for row in answer.findings),
        *named("Findings", answer.past),
        *_checkpoint(answer),
        *named("Code", answer.code),
        *_preparation(answer),
        *_transfer(answer),
        *_rehearsal(answer),
        *named("Unattended", answer.unattended),
        *(f"Risk: {risk}" for risk in answer.risks or ()),
        *_attempts(answer),
        *named("Telemetry", pairs(answer.telemetry or {})),
        *(block for drawn in answer.samples or () for block in sample(drawn)),
        *named("Cost", _cost(answer.cost)),
        *named("Time", _goodput(answer.goodput)),
        *_planned(answer.planned or {}),
        *named("Folder", answer.folder),
        *named("Window", answer.window),
        *named("Not reached", answer.unreachable),
        *named("Heard from", _age(answer.heartbeat_age_s, unconfirmed)),
        f"Next: {answer.next_step}",
    ]


def _rehearsal(answer: StatusAnswer) -> Iterable[Block]:
    state = answer.rehearsal
    if state is None:
        return ()
    return f"Rehearsal of {state.of}: {state.verdict or 'under way'}", *(state.failed or ())


def _phase(phase: PhaseRow | None) -> str | None:
    if phase is None:
        return None
    verdicts = [f"; {name} {verdict}" for name, verdict in (phase.verdicts or {}).items()]
    place = f"{phase.name} ({phase.number} of {phase.count}), to step {phase.ends:,}"
    return place + "".join(verdicts)


def _age(age_s: float | None, unconfirmed: str) -> str | None:
    return None if age_s is None else f"{spoken_duration(age_s)} ago{unconfirmed}"


def _cost(cost: RunCost | None) -> str | None:
    if cost is None:
        return None
    price = "" if cost.usd_per_h is None else f", {usd_text(cost.usd_per_h)}/h"
    budget = "" if cost.budget_usd is None else f", of {usd_text(cost.budget_usd)}"
    return f"{usd_text(cost.usd)}{price}{budget}"


def _goodput(goodput: Goodput | None) -> str | None:
    if goodput is None:
        return None
    usd = goodput.lost_usd or {}
    lost = ", ".join(
        f"{cause} {spoken_duration(seconds)}"
        + (f" ({usd_text(usd[cause])})" if cause in usd else "")
        for cause, seconds in goodput.lost_s.items()
    )
    whole = f"{share_text(goodput.ettr, 1)} of {spoken_duration(goodput.elapsed_s)} was training"
    return whole + (f"; lost: {lost}" if lost else "")


_PLANNED: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "tokens_per_s": ("tokens/s", number_text),
    "memory_gib": ("memory", gib_text),
    "hours": ("time to the end", spoken_hours),
    "usd": ("cost to the end", usd_text),
}


def _planned(figures: Mapping[str, PlannedFigure]) -> Iterable[Block]:
    rows = [
        (f"{name} (by {row.source})" if row.source else name, text(row.planned), text(row.seen))
        for key, (name, text) in _PLANNED.items()
        if (row := figures.get(key)) is not None
    ]
    if rows:
        yield Grid(("figure", "planned", "seen"), rows)


def _ranks(ranks: RanksState | None) -> str | None:
    if ranks is None:
        return None
    slowest = "" if ranks.slowest is None else f"; slowest: rank {ranks.slowest}"
    behind = (
        ""
        if ranks.behind is None
        else f", {number_text(ranks.behind)} times slower than the median"
    )
    return f"{ranks.aggregated} aggregated{slowest}{behind}"


def _checkpoint(answer: StatusAnswer) -> Iterable[Block]:
    newest = answer.checkpoint
    if newest is None:
        return
    mirrored = (
        ""
        if newest.mirrored_step is None
        else f", mirrored up to {number_text(newest.mirrored_step)}"
    )
    yield (
        f"Checkpoint: step {number_text(newest.step)}, {spoken_duration(newest.age_s)} "
        f"old{mirrored}"
    )
    yield from named("Not mirrored", newest.untrusted_mirror_problem)


def _preparation(answer: StatusAnswer) -> Iterable[Block]:
    if answer.preparation is not None:
        yield f"Preparing: {preparing(answer.preparation)}"
    for line in answer.evidence or ():
        yield f"Its log says: {line}"


def _session(answer: StatusAnswer) -> Iterable[Block]:
    if answer.resumes_at is not None:
        yield f"The next session begins at {answer.resumes_at}"
    row = answer.session
    if row is None:
        return
    until = f", until {row.ends_at} at most" if row.ends_at is not None else ""
    ended = f" ended: {row.outcome}" if row.outcome is not None else ""
    said = row.untrusted_detail
    detail = f" ({said})" if said is not None else ""
    word = "Session" if answer.host == KAGGLE else "Job"
    yield f"{word} {row.number}{until}{ended}{detail}"


def _transfer(answer: StatusAnswer) -> Iterable[Block]:
    state = answer.transfer
    if state is None:
        return
    if state.total_bytes:
        share = share_text(state.done_bytes / state.total_bytes)
        rate = f", {size_text(state.bytes_per_s)}/s" if state.bytes_per_s else ""
        yield (
            f"Transfer: {state.what}, {size_text(state.done_bytes)} of "
            f"{size_text(state.total_bytes)} "
            f"({share}){rate}"
        )
    if state.error is not None:
        yield f"Transfer waits: {state.error}"


def _attempts(answer: StatusAnswer) -> Iterable[Block]:
    if not answer.attempts:
        return
    rows = [
        (
            number_text(row.number),
            row.why,
            figure(row.started_at_step),
            figure(row.last_step),
            " ".join(part for part in (row.reason, row.untrusted_detail, _job(row)) if part),
        )
        for row in answer.attempts
    ]
    yield Grid(("attempt", "why", "from step", "to step", "ended by"), rows)
    for row in answer.attempts:
        for path, (old, new) in (row.changed or {}).items():
            change = f"{setting(old)} -> {setting(new)}"
            own = path in (row.changed_by_operator or ())
            who = "by operator" if own else "derived" if row.by == "operator" else None
            yield f"Attempt {row.number}: {path}: {change} ({who or f'by {row.by}: {row.why}'})"


def _job(row: AttemptRow) -> str:
    """The job that an attempt ended with, where that is known."""
    if row.session is None:
        return ""
    who = f" {row.session.untrusted_detail}" if row.session.untrusted_detail else ""
    return f"(job {row.session.number}: {row.session.outcome}{who})"


def sample(drawn: Sample) -> list[Block]:
    """A line about a text, and its lines."""
    step = "" if drawn.step is None else f"step {drawn.step}, "
    after = "" if drawn.untrusted_prompt is None else f"after {drawn.untrusted_prompt!r}, "
    why = f": {drawn.untrusted_detail}" if drawn.untrusted_detail else ""
    head = f"{step}{after}{drawn.tokens} tokens, {_ENDS[drawn.ended]}{why}:"
    return [
        head[0].upper() + head[1:],
        *(f"  | {line}" for line in drawn.untrusted_text.split("\n")),
    ]
