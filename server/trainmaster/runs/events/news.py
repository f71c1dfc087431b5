"""Selects the stored events that a waiting caller is shown, and words them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.figures import number_text
from trainer_runtime.core.protocol.finding import finding_id
from trainer_runtime.core.protocol.journal_lines import (
    AttemptEnded,
    FindingReported,
    StateEntered,
    journal_line,
)
from trainer_runtime.core.protocol.text import code_word
from trainer_runtime.core.protocol.trainer_lines import (
    CheckpointChanged,
    Decided,
    PhaseChanged,
    Warned,
    trainer_line,
)
from trainmaster.answers.runs import Change
from trainmaster.runs.diagnosis.finding_names import is_named
from trainmaster.store.metrics_rows import StoredEvent
from trainmaster.sync.run_view import RunView

_LOSS = "val_loss"


def change_of(stored: StoredEvent, metric: str = _LOSS) -> Change | None:
    """The change in an event; None for bookkeeping. `metric`: the metric that chooses checkpoints,
    shown beside an evaluation's loss."""
    event = stored.event
    if stored.attempt == 0:
        return _of_journal(event)
    if event.kind == "eval":
        detail = _evaluated(event.values, metric)
        return Change(event="eval", t=event.t, step=event.step, detail=detail)
    line = trainer_line(event)
    if isinstance(line, CheckpointChanged):
        return _of_checkpoint(event, line)
    if isinstance(line, Decided):
        return _of_decision(event, line)
    if isinstance(line, Warned):
        return Change(
            event="finding", t=event.t, step=line.step, detail=code_word(line.code or "warning")
        )
    if isinstance(line, PhaseChanged):
        ends = f" ended {line.verdict or ''}".rstrip() if line.ended else ""
        detail = f"{code_word(line.name)}{ends}"
        return Change(event="phase", t=event.t, step=event.step, detail=detail)
    return None


def _of_checkpoint(event: Event, line: CheckpointChanged) -> Change | None:
    if line.action == "verified":
        return Change(event="checkpoint", t=event.t, step=line.step)
    if line.action == "failed":
        return Change(event="finding", t=event.t, step=line.step, detail="checkpoint failed")
    return None


def _of_decision(event: Event, line: Decided) -> Change | None:
    if line.what == "skip_checkpoint":
        step = line.value if isinstance(line.value, int) else None
        return Change(
            event="checkpoint_skipped", t=event.t, step=step, untrusted_detail=line.reason
        )
    if line.what == "log_replaced":
        return Change(event="log_replaced", t=event.t, untrusted_detail=line.reason)
    return None


def _evaluated(values: Mapping[str, object], metric: str) -> str | None:
    shown = {key: values[key] for key in (_LOSS, metric) if key in values}
    return ", ".join(f"{key} {number_text(value)}" for key, value in shown.items()) or None


def news_of(events: Sequence[StoredEvent], view: RunView) -> list[Change]:
    """The changes in `events`, in order; a finding of both host and trainer appears once."""
    metric = view.run.config.checkpoint.metric
    news: list[Change] = []
    for stored in events:
        is_left_out = _is_unnamed(stored) or _is_repeated(stored, view)
        change = None if is_left_out else change_of(stored, metric)
        if change is not None:
            news.append(change.model_copy(update={"finding": _finding(stored, view)}))
    return news


def _is_unnamed(stored: StoredEvent) -> bool:
    """Whether it is a host's finding whose id or code could be any text."""
    line = journal_line(stored.event) if stored.attempt == 0 else None
    return isinstance(line, FindingReported) and not is_named(line.finding)


def _finding(stored: StoredEvent, view: RunView) -> str | None:
    """The id of the finding that an event reports, as all answers name it; None for others."""
    event = stored.event
    if stored.attempt == 0:
        line = journal_line(event)
        return line.finding.id if isinstance(line, FindingReported) else None
    warned = trainer_line(event)
    if not isinstance(warned, Warned):
        return None
    code = str(warned.code)
    record = view.record.finding_of(stored.attempt, code, event.t)
    if record is not None and is_named(record.finding):
        return record.finding.id
    return finding_id(view.run.placement, stored.attempt, code, warned.step)


def _is_repeated(stored: StoredEvent, view: RunView) -> bool:
    """Of the guard's warning and the host's finding with the same code, the earlier one counts."""
    event = stored.event
    if stored.attempt == 0:
        line = journal_line(event)
        return isinstance(line, FindingReported) and not _is_news(event.t, line, view)
    warned = trainer_line(event)
    if isinstance(warned, Warned):
        record = view.record.finding_of(stored.attempt, str(warned.code), event.t)
        return record is not None and record.opened_t < event.t
    return False


def _is_news(t: float, line: FindingReported, view: RunView) -> bool:
    """Opened, reopened or more severe; not new figures, nor what the trainer has reported."""
    record = view.record.findings.get(line.finding.id)
    if record is None or t not in (record.opened_t, record.news_t):
        return False
    return t > record.opened_t or not any(
        warning.t <= t
        and view.record.finding_of(record.attempt, str(warning.code), warning.t) is record
        for progress in view.attempts
        if progress.attempt == record.attempt
        for warning in progress.warnings
    )


def _of_journal(event: Event) -> Change | None:
    line = journal_line(event)
    if isinstance(line, FindingReported):
        finding = line.finding
        return Change(event="finding", t=event.t, step=finding.step, detail=code_word(finding.code))
    if isinstance(line, StateEntered):
        reason = None if line.reason is None else code_word(line.reason)
        return Change(event=line.state.value, t=event.t, detail=reason)
    if isinstance(line, AttemptEnded):
        return Change(
            event="attempt_ended",
            t=event.t,
            step=line.last_step,
            detail=f"attempt {line.attempt}: {code_word(line.reason)}",
            untrusted_detail=line.detail,
        )
    return None
