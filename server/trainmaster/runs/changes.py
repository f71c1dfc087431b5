"""Which stored events are news to whoever waits, and in which words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.store.metrics_store import StoredEvent
from trainmaster.sync.run_view import RunView
from trainmaster.words.answers.runs import Change

_LOSS = "val_loss"


def change_of(event: StoredEvent, metric: str = _LOSS) -> Change | None:
    """The news in an event; None for what is bookkeeping. `metric`: what checkpoints are chosen by,
    told of an evaluation beside its loss."""
    if event.attempt == 0:
        return _of_journal(event)
    body = event.body
    if event.kind == "checkpoint":
        if body.get("action") == "verified":
            return Change(event="checkpoint", t=event.t, step=event.step)
        if body.get("action") == "failed":
            return Change(event="finding", t=event.t, step=event.step, detail="checkpoint failed")
        return None
    if event.kind == "eval":
        detail = _evaluated(body.get("values") or {}, metric)
        return Change(event="eval", t=event.t, step=event.step, detail=detail)
    if event.kind == "warning":
        return Change(
            event="finding", t=event.t, step=event.step, detail=str(body.get("code", "warning"))
        )
    if event.kind == "decision" and body.get("what") == "skip_checkpoint":
        return Change(
            event="checkpoint_skipped", t=event.t, step=body.get("value"), detail=body.get("reason")
        )
    if event.kind == "decision" and body.get("what") == "log_replaced":
        return Change(event="log_replaced", t=event.t, detail=str(body.get("reason")))
    if event.kind == "phase":
        return Change(event="phase", t=event.t, step=event.step, detail=str(body.get("name", "")))
    return None


def _evaluated(values: Mapping[str, Any], metric: str) -> str | None:
    told = {key: values[key] for key in (_LOSS, metric) if key in values}
    return (
        ", ".join(
            f"{key} {value:.4f}" if isinstance(value, float) else f"{key} {value}"
            for key, value in told.items()
        )
        or None
    )


def news_of(events: Sequence[StoredEvent], view: RunView) -> list[Change]:
    """The news in `events`, in their order; a finding that both box and trainer tell of, once."""
    metric = view.run.config["checkpoint"]["metric"]
    told = [change_of(event, metric) for event in events if not _is_told_already(event, view)]
    return [change for change in told if change is not None]


def _is_told_already(event: StoredEvent, view: RunView) -> bool:
    """Of the guard's warning and the box's finding of one code the earlier one is news."""
    if event.attempt == 0 and event.kind == "finding":
        return not _is_news(event, view)
    if event.kind == "warning":
        found = view.record.finding_of(event.attempt, str(event.body.get("code")), event.t)
        return found is not None and found.opened_t < event.t
    return False


def _is_news(event: StoredEvent, view: RunView) -> bool:
    """Opened, opened again or more severe; not its newest figures, nor what the trainer told."""
    finding = event.body.get("finding") or {}
    known = view.record.findings.get(str(finding.get("id")))
    if known is None or event.t not in (known.opened_t, known.news_t):
        return False
    return event.t > known.opened_t or not any(
        (told_t := warning.get("t") or 0.0) <= event.t
        and view.record.finding_of(known.attempt, str(warning["code"]), told_t) is known
        for progress in view.attempts
        if progress.attempt == known.attempt
        for warning in progress.warnings
    )


def _of_journal(event: StoredEvent) -> Change | None:
    body = event.body
    if event.kind == "finding":
        finding = body["finding"]
        return Change(
            event="finding", t=event.t, step=finding.get("step"), detail=str(finding["code"])
        )
    if event.kind == "state":
        return Change(event=str(body["state"]), t=event.t, detail=body.get("reason"))
    if event.kind == "attempt_ended":
        detail = f"attempt {body['attempt']}: {body['reason']} ({body.get('detail')})"
        return Change(event="attempt_ended", t=event.t, step=body.get("last_step"), detail=detail)
    return None
