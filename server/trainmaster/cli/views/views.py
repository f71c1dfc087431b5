"""What people see of an answer: lines of text and grids, before anything is printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch

from trainer_runtime.core.checkpoints.superseded import kept_until
from trainer_runtime.core.protocol.curve import sparkline
from trainer_runtime.core.protocol.duration import spoken_duration
from trainer_runtime.core.records import dataclass
from trainmaster.cli.format import preparing, setting, size, usd, value
from trainmaster.cli.views.metrics import ranked_runs, remarks
from trainmaster.words.answers.base import Answer
from trainmaster.words.answers.metrics import MetricsAnswer
from trainmaster.words.answers.run_list import RunRow, RunsAnswer
from trainmaster.words.answers.runs import (
    CheckpointsAnswer,
    CleanAnswer,
    FetchAnswer,
    LaunchAnswer,
    LogAnswer,
    SkippedCheckpoint,
    StopAnswer,
    TransferAnswer,
    WaitAnswer,
)
from trainmaster.words.answers.status import RanksState, RunCost, StatusAnswer

# A step that came longer ago than this is worth a word.
_LONG_STEP_S = 60.0
_CURVE_WIDTH = 48


@dataclass(frozen=True, slots=True)
class Grid:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = str | Grid


@singledispatch
def view(answer: Answer) -> list[Block]:
    """The answer as blocks, in reading order."""
    return [answer.model_dump_json(indent=2)]


@view.register
def _(answer: LaunchAnswer) -> list[Block]:
    reason = f" ({answer.reason})" if answer.reason else ""
    return [
        f"{answer.run_id}: {answer.state}{reason}, attempt {answer.attempt} on {answer.host}",
        *named("The next session begins at", answer.resumes_at),
        *(["The host could not be reached yet; delivery is pending."] * bool(answer.pending)),
        *named("Applied", answer.applied),
        *_superseded(answer.superseded or ()),
        *(f"Warning: {warning}" for warning in answer.warnings or ()),
        *named("Note", answer.note),
        *named("Next", answer.next_step),
    ]


def _skipped(item: SkippedCheckpoint) -> str:
    text = f"Skipped: step {value(item.step)}, {item.reason}"
    return text if item.untrusted_detail is None else f"{text}: {item.untrusted_detail}"


def _superseded(steps: Sequence[int]) -> list[str]:
    return [f"Superseded checkpoints: {kept_until(steps)}"] if steps else []


@view.register
def _(answer: RunsAnswer) -> list[Block]:
    failed: list[Block] = [
        f"Not read: {one.subject}: {one.code}: {one.message}" for one in answer.failed or ()
    ]
    if not answer.runs:
        return failed or ["No runs."]
    rows = [
        (row.run_id, _state(row), _steps(row.step, row.target_step), row.host, pairs(row.labels))
        for row in answer.runs
    ]
    grid = Grid(("run", "state", "step", "host", "labels"), rows)
    return [grid, *(["There are more; raise --limit."] if answer.more else []), *failed]


def _state(row: RunRow) -> str:
    return f"{row.state} (quarantined)" if row.quarantined else row.state


@view.register
def _(answer: StatusAnswer) -> list[Block]:
    said = ": ".join(part for part in (answer.reason, answer.untrusted_detail) if part)
    reason = f" ({said})" if said else ""
    remaining = "" if answer.eta_s is None else f", {spoken_duration(answer.eta_s)} to go"
    still = answer.step_age_s or 0.0
    remaining += f", the last one {spoken_duration(still)} ago" if still >= _LONG_STEP_S else ""
    unconfirmed = " (unconfirmed)" if answer.unconfirmed else ""
    return [
        f"{answer.run_id}: {answer.state}{reason} on {answer.host}, attempt {answer.attempt}",
        f"Step {_steps(answer.step, answer.target_step)}{remaining}",
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
        *named("Unattended", answer.unattended),
        *(f"Risk: {risk}" for risk in answer.risks or ()),
        *_attempts(answer),
        *named("Telemetry", pairs(answer.telemetry or {})),
        *named("Cost", _cost(answer.cost)),
        *named("Folder", answer.folder),
        *named("Window", answer.window),
        *named("Not reached", answer.unreachable),
        *named("Heard from", _age(answer.heartbeat_age_s, unconfirmed)),
        f"Next: {answer.next_step}",
    ]


@view.register
def _(answer: LogAnswer) -> list[Block]:
    return list(answer.lines)


def _thinned(values: Sequence[object]) -> Sequence[object]:
    """As many as a line has room for, evenly, the last one among them."""
    most = min(len(values), _CURVE_WIDTH)
    return [values[(at + 1) * len(values) // most - 1] for at in range(most)]


@view.register
def _(answer: MetricsAnswer) -> list[Block]:
    rows = [
        (
            run,
            key,
            sparkline(_thinned(series.values)),
            *(_figure(item) for item in (series.first, series.last, series.min, series.max)),
            value(series.n),
        )
        for run, by_key in answer.runs.items()
        for key, series in by_key.items()
    ]
    metric = "metric" if answer.form is None else f"metric ({answer.form})"
    grid = Grid(("run", metric, "curve", "first", "last", "min", "max", "points"), rows)
    grids: list[Block] = [grid] if rows else []
    return [*grids, *ranked_runs(answer), *remarks(answer)] or ["No points yet."]


@view.register
def _(answer: WaitAnswer) -> list[Block]:
    state = "" if answer.state in (None, answer.event) else f"; {answer.state}"
    at = "" if answer.step is None else f" at step {value(answer.step)}"
    run = "" if answer.run_id is None else f"{answer.run_id}: "
    left = "" if answer.still_open is None else f" ({answer.still_open} still open)"
    return [
        f"{run}{answer.event}{state}{at}{left}",
        *([f"- {value(answer.omitted)} others left out"] if answer.omitted else []),
        *(
            f"- {'' if change.run_id is None else f'{change.run_id}: '}{change.event}"
            + ("" if change.step is None else f" at step {value(change.step)}")
            + "".join(f": {said}" for said in (change.detail, change.untrusted_detail) if said)
            for change in answer.changes
        ),
        *named("Not reached", answer.unreachable),
        f"Next: {answer.next_step}",
    ]


@view.register
def _(answer: CheckpointsAnswer) -> list[Block]:
    rows = [
        (
            value(row.step),
            size(row.size_bytes),
            pairs(row.metrics),
            " ".join(row.tags),
            {True: "verified", False: "damaged", None: "not checked"}[row.verified],
        )
        for row in answer.checkpoints
    ]
    if answer.not_ours:
        took = "As its log reports. Only the training's owner can verify and resume them."
    elif answer.resume_from is None:
        took = "A resume would start from scratch."
    else:
        took = f"A resume would start from step {value(answer.resume_from)}."
    return [
        Grid(("step", "size", "metrics", "tags", "integrity"), rows),
        *(_skipped(item) for item in answer.skipped),
        *_superseded([row.step for row in answer.superseded or ()]),
        took,
        *named("Not reached", answer.unreachable),
    ]


@view.register
def _(answer: StopAnswer) -> list[Block]:
    pending = "; the host has not been reached yet" if answer.pending else ""
    return [f"{answer.run_id}: {answer.state}{pending}", f"Next: {answer.next_step}"]


@view.register
def _(answer: CleanAnswer) -> list[Block]:
    verb = "Would remove" if answer.dry_run else "Removed"
    freed = "" if answer.dry_run else f": {size(answer.freed_bytes)} freed"
    return [
        f"{answer.run_id} on {answer.host}{freed}",
        *(f"{verb}: {path}" for path in answer.removed),
        *(f"Kept: {path}" for path in answer.kept),
        *named("Note", answer.note),
    ]


@view.register
def _(answer: FetchAnswer) -> list[Block]:
    what = ", ".join(answer.brought or ("nothing",))
    rest = "; the rest is still to come" if answer.more else ""
    files = "1 file" if answer.files == 1 else f"{value(answer.files)} files"
    return [
        f"{what}: {files}, {size(answer.bytes)}, in {answer.folder}{rest}",
        *(f"Left out: {item.path}: {item.reason}" for item in answer.skipped),
        *named("Next", answer.next_step),
    ]


@view.register
def _(answer: TransferAnswer) -> list[Block]:
    return [f"{answer.run_id}: {', '.join(answer.done) or 'nothing to transfer'}"]


def named(name: str, text: str | None) -> Iterable[Block]:
    """A line for what may be missing."""
    return (f"{name}: {text}",) if text else ()


def _steps(step: int, target_step: int | None) -> str:
    return value(step) if target_step is None else f"{value(step)} of {value(target_step)}"


def pairs(values: Mapping[str, object]) -> str:
    """Names and values side by side, in one cell."""
    return "  ".join(f"{name}={value(item)}" for name, item in values.items())


def _figure(item: object) -> str:
    return "" if item is None else value(item)


def _age(age_s: float | None, unconfirmed: str) -> str | None:
    return None if age_s is None else f"{spoken_duration(age_s)} ago{unconfirmed}"


def _cost(cost: RunCost | None) -> str | None:
    if cost is None:
        return None
    price = "" if cost.usd_per_h is None else f", {cost.usd_per_h:.2f} USD an hour"
    budget = "" if cost.budget_usd is None else f", of {cost.budget_usd:.2f} USD"
    return f"{usd(cost.usd)} USD{price}{budget}"


def _ranks(ranks: RanksState | None) -> str | None:
    if ranks is None:
        return None
    slowest = "" if ranks.slowest is None else f"; slowest: rank {ranks.slowest}"
    behind = "" if ranks.behind is None else f", {value(ranks.behind)} times slower than the median"
    return f"{ranks.aggregated} aggregated{slowest}{behind}"


def _checkpoint(answer: StatusAnswer) -> Iterable[Block]:
    newest = answer.checkpoint
    if newest is None:
        return
    mirrored = (
        "" if newest.mirrored_step is None else f", mirrored up to {value(newest.mirrored_step)}"
    )
    yield f"Checkpoint: step {value(newest.step)}, {spoken_duration(newest.age_s)} old{mirrored}"
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
    yield f"Session {row.number}{until}{ended}{detail}"


def _transfer(answer: StatusAnswer) -> Iterable[Block]:
    state = answer.transfer
    if state is None:
        return
    if state.total_bytes:
        share = f"{state.done_bytes / state.total_bytes:.0%}"
        rate = f", {size(state.bytes_per_s)}/s" if state.bytes_per_s else ""
        yield (
            f"Transfer: {state.what}, {size(state.done_bytes)} of {size(state.total_bytes)} "
            f"({share}){rate}"
        )
    if state.error is not None:
        yield f"Transfer waits: {state.error}"


def _attempts(answer: StatusAnswer) -> Iterable[Block]:
    if not answer.attempts:
        return
    rows = [
        (
            value(row.number),
            row.why,
            _figure(row.started_at_step),
            _figure(row.last_step),
            " ".join(part for part in (row.reason, row.untrusted_detail) if part),
        )
        for row in answer.attempts
    ]
    yield Grid(("attempt", "why", "from step", "to step", "ended by"), rows)
    for row in answer.attempts:
        for path, (old, new) in (row.changed or {}).items():
            change = f"{setting(old)} -> {setting(new)}"
            own = path in (row.changed_by_operator or ())
            who = "operator" if own else f"{row.by}: {row.why}"
            yield f"Attempt {row.number}: {path}: {change} (by {who})"
