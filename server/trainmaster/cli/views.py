"""What people see of an answer: lines of text and grids, before anything is printed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

from trainer_runtime.core.curve import sparkline
from trainer_runtime.core.duration import spoken_duration
from trainmaster.answers import (
    AdoptAnswer,
    Answer,
    CheckpointsAnswer,
    CleanAnswer,
    FetchAnswer,
    LaunchAnswer,
    LogAnswer,
    MetricsAnswer,
    ReplayAnswer,
    RunsAnswer,
    StatusAnswer,
    StopAnswer,
    TickAnswer,
    TransferAnswer,
    WaitAnswer,
)
from trainmaster.cli.figures import preparing, setting, size, value
from trainmaster.cli.metric_views import ranked_runs, remarks
from trainmaster.host_answers import (
    DoctorAnswer,
    GcAnswer,
    HostAddedAnswer,
    HostCheckAnswer,
    HostCheckRow,
    HostRemovedAnswer,
    HostsAnswer,
    HostTrustAnswer,
)


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
    return [
        f"{answer.run_id}: {answer.state}, attempt {answer.attempt} on {answer.host}",
        *(["The host could not be reached yet; it is told when it can be."] * bool(answer.pending)),
        *_named("Applied", answer.applied),
        *(f"Warning: {warning}" for warning in answer.warnings or ()),
        *_named("Note", answer.note),
        *_named("Next", answer.next_step),
    ]


@view.register
def _(answer: AdoptAnswer) -> list[Block]:
    reasons = {row.path: row.reason for row in answer.skipped}
    rows = [
        (
            "?" if row.step is None else value(row.step),
            row.path,
            size(row.size_bytes),
            _pairs(row.metrics),
            "yes" if row.verified else f"no: {reasons[row.path]}",
        )
        for row in answer.checkpoints
    ]
    begun = f"{answer.run_id}: {answer.state}, attempt {answer.attempt} on {answer.host}"
    return [
        f"{answer.folder}: output of {answer.framework}",
        Grid(("step", "path", "size", "metrics", "verified"), rows),
        *(["Goes on from step " + value(answer.resume_from)] * (answer.resume_from is not None)),
        *([begun] if answer.run_id else []),
        *_named("Starting spec", answer.spec),
        *(["The spec:", *answer.spec_text.splitlines()] if answer.spec_text else []),
        *_named("To fill in", ", ".join(answer.open or ()) or None),
        *(f"Warning: {warning}" for warning in answer.warnings or ()),
        *(f"Note: {note}" for note in answer.notes or ()),
        *_named("Next", answer.next_step),
    ]


@view.register
def _(answer: RunsAnswer) -> list[Block]:
    if not answer.runs:
        return ["No runs."]
    rows = [
        (row.run_id, row.state, _steps(row.step, row.target_step), row.host, _pairs(row.labels))
        for row in answer.runs
    ]
    grid = Grid(("run", "state", "step", "host", "labels"), rows)
    return [grid, "There are more; raise --limit."] if answer.more else [grid]


@view.register
def _(answer: StatusAnswer) -> list[Block]:
    reason = f" ({answer.reason})" if answer.reason else ""
    remaining = "" if answer.eta_s is None else f", {spoken_duration(answer.eta_s)} to go"
    unconfirmed = " (unconfirmed)" if answer.unconfirmed else ""
    return [
        f"{answer.run_id}: {answer.state}{reason} on {answer.host}, attempt {answer.attempt}",
        f"Step {_steps(answer.step, answer.target_step)}{remaining}",
        *_named("Metrics", _pairs(answer.metrics)),
        *(f"Finding: {row.severity} {row.code} ({row.id})" for row in answer.findings),
        *_checkpoint(answer),
        *_preparation(answer),
        *_transfer(answer),
        *(f"Risk: {risk}" for risk in answer.risks or ()),
        *_attempts(answer),
        *_named("Telemetry", _pairs(answer.telemetry or {})),
        *_named("Cost", None if answer.cost is None else f"{answer.cost:.2f} USD"),
        *_named("Folder", answer.folder),
        *_named("Window", answer.window),
        *_named("Not reached", answer.unreachable),
        *_named("Heard from", _age(answer.heartbeat_age_s, unconfirmed)),
        f"Next: {answer.next_step}",
    ]


@view.register
def _(answer: LogAnswer) -> list[Block]:
    return list(answer.lines)


@view.register
def _(answer: MetricsAnswer) -> list[Block]:
    rows = [
        (
            run,
            key,
            sparkline(series.values),
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
    state = "" if answer.event == answer.state else f"; {answer.state}"
    return [
        f"{answer.run_id}: {answer.event}{state} at step {value(answer.step)}",
        *([f"- {value(answer.omitted)} older left out"] if answer.omitted else []),
        *(
            f"- {change.event}"
            + ("" if change.step is None else f" at step {value(change.step)}")
            + (f": {change.detail}" if change.detail else "")
            for change in answer.changes
        ),
        *_named("Not reached", answer.unreachable),
        f"Next: {answer.next_step}",
    ]


@view.register
def _(answer: CheckpointsAnswer) -> list[Block]:
    rows = [
        (
            value(row.step),
            size(row.size_bytes),
            _pairs(row.metrics),
            " ".join(row.tags),
            {True: "verified", False: "damaged", None: "not checked"}[row.verified],
        )
        for row in answer.checkpoints
    ]
    if answer.not_ours:
        took = "As its log tells. They are not ours: whoever started it can verify and resume them."
    elif answer.resume_from is None:
        took = "A resume would start from scratch."
    else:
        took = f"A resume would start from step {value(answer.resume_from)}."
    return [
        Grid(("step", "size", "metrics", "tags", "integrity"), rows),
        *(f"Skipped: step {value(item.step)}, {item.reason}" for item in answer.skipped),
        took,
        *_named("Not reached", answer.unreachable),
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
    ]


@view.register
def _(answer: FetchAnswer) -> list[Block]:
    what = ", ".join(answer.brought or ("nothing",))
    rest = "; the rest is still to come" if answer.more else ""
    files = "1 file" if answer.files == 1 else f"{value(answer.files)} files"
    return [
        f"{what}: {files}, {size(answer.bytes)}, in {answer.folder}{rest}",
        *(f"Left out: {item.path}: {item.reason}" for item in answer.skipped),
        *_named("Next", answer.next_step),
    ]


@view.register
def _(answer: DoctorAnswer) -> list[Block]:
    rows = [
        (
            "ok" if check.ok else "missing" if check.needed else "optional",
            check.name,
            check.found,
            check.remedy or "",
        )
        for check in answer.checks
    ]
    verdict = "Everything needed is here." if answer.ok else "Something needed is missing."
    return [
        f"Trainmaster {answer.version}, home {answer.home}",
        Grid(("", "what", "found", "remedy"), rows),
        verdict,
    ]


@view.register
def _(answer: TickAnswer) -> list[Block]:
    if not answer.runs:
        return ["Nothing is due."]
    return [
        Grid(
            ("run", "state", "did"),
            [(row.run_id, row.state, ", ".join(row.did)) for row in answer.runs],
        )
    ]


@view.register
def _(answer: ReplayAnswer) -> list[Block]:
    points, runs = value(answer.points), value(answer.runs)
    return [f"Read {points} points of {runs} runs again in {answer.seconds:.1f} s."]


@view.register
def _(answer: HostsAnswer) -> list[Block]:
    rows = [
        (
            row.name,
            row.state,
            "" if row.as_of is None else time.strftime("%m-%d %H:%M", time.localtime(row.as_of)),
            row.address,
            row.transport or "",
            row.root if row.cache is None else f"{row.root}, cache {row.cache}",
            ", ".join(row.gpus or ()),
            value(row.open_runs),
        )
        for row in answer.hosts
    ]
    columns = ("host", "state", "as of", "address", "transport", "root", "GPUs", "open runs")
    reasons = (f"{row.name}: {row.reason}" for row in answer.hosts if row.reason)
    return [Grid(columns, rows), *reasons, *(view(answer.check) if answer.check else ())]


@view.register
def _(answer: HostAddedAnswer) -> list[Block]:
    return [
        f"Added {answer.host}: {answer.address}",
        *_named("Pinned its key", answer.fingerprint),
        *([_host_checks(answer.checks)] if answer.checks else []),
        f"Next: {answer.next_step}",
    ]


@view.register
def _(answer: HostCheckAnswer) -> list[Block]:
    verdict = "can train." if answer.ok else "can't train like this."
    return [_host_checks(answer.checks), f"{answer.host} {verdict}"]


@view.register
def _(answer: HostTrustAnswer) -> list[Block]:
    if not answer.changed:
        return [f"{answer.host} shows the key that was pinned: {', '.join(answer.now)}"]
    return [
        f"Pinned the key of {answer.host}",
        *(f"Before: {line}" for line in answer.pinned),
        *(f"Now: {line}" for line in answer.now),
    ]


@view.register
def _(answer: HostRemovedAnswer) -> list[Block]:
    return [
        f"Removed {answer.host}; nothing on it was touched.",
        *(f"{run_id} goes on there; nobody follows it any more." for run_id in answer.abandoned),
        *([answer.next_step] if answer.next_step else []),
    ]


@view.register
def _(answer: GcAnswer) -> list[Block]:
    verb = "Would remove" if answer.dry_run else "Removed"
    rows = [
        *((verb, f"{row.kind}/{row.name}", size(row.size_bytes), "") for row in answer.removed),
        *(
            ("Kept", f"{row.kind}/{row.name}", size(row.size_bytes), row.reason or "")
            for row in answer.kept
        ),
    ]
    freed = f"{verb} {size(answer.freed_bytes)} from the cache of {answer.host}"
    return [Grid(("", "entry", "size", "used by"), rows), freed] if rows else [freed]


def _host_checks(checks: Sequence[HostCheckRow]) -> Grid:
    rows = [(row.state, row.name, row.found, row.remedy or "") for row in checks]
    return Grid(("", "what", "found", "remedy"), rows)


@view.register
def _(answer: TransferAnswer) -> list[Block]:
    return [f"{answer.run_id}: {', '.join(answer.done) or 'nothing to transfer'}"]


def _named(name: str, text: str | None) -> Iterable[Block]:
    return (f"{name}: {text}",) if text else ()


def _steps(step: int, target_step: int | None) -> str:
    return value(step) if target_step is None else f"{value(step)} of {value(target_step)}"


def _pairs(pairs: Mapping[str, object]) -> str:
    return "  ".join(f"{name}={value(item)}" for name, item in pairs.items())


def _figure(item: object) -> str:
    return "" if item is None else value(item)


def _age(age_s: float | None, unconfirmed: str) -> str | None:
    return None if age_s is None else f"{spoken_duration(age_s)} ago{unconfirmed}"


def _checkpoint(answer: StatusAnswer) -> Iterable[Block]:
    newest = answer.checkpoint
    if newest is None:
        return
    mirrored = (
        "" if newest.mirrored_step is None else f", mirrored up to {value(newest.mirrored_step)}"
    )
    yield f"Checkpoint: step {value(newest.step)}, {spoken_duration(newest.age_s)} old{mirrored}"
    yield from _named("Not mirrored", newest.mirror_problem)


def _preparation(answer: StatusAnswer) -> Iterable[Block]:
    if answer.preparation is not None:
        yield f"Preparing: {preparing(answer.preparation)}"
    for line in answer.evidence or ():
        yield f"Its log says: {line}"


def _transfer(answer: StatusAnswer) -> Iterable[Block]:
    state = answer.transfer
    if state is None:
        return
    share = f" ({state.done_bytes / state.total_bytes:.0%})" if state.total_bytes else ""
    rate = f", {size(state.bytes_per_s)}/s" if state.bytes_per_s else ""
    yield (
        f"Transfer: {state.what}, {size(state.done_bytes)} of {size(state.total_bytes)}"
        f"{share}{rate}"
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
            " ".join(part for part in (row.reason, row.detail) if part),
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
