"""Which stored events are news to whoever waits, and in which words."""

from __future__ import annotations

from trainmaster.answers import Change
from trainmaster.metrics_store import StoredEvent


def change_of(event: StoredEvent) -> Change | None:
    """The news in an event; None for what is bookkeeping."""
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
        loss = (body.get("values") or {}).get("val_loss")
        detail = f"val_loss {loss:.4f}" if isinstance(loss, float) else f"val_loss {loss}"
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


def _of_journal(event: StoredEvent) -> Change | None:
    body = event.body
    if event.kind == "state":
        return Change(event=str(body["state"]), t=event.t, detail=body.get("reason"))
    if event.kind == "attempt_ended":
        detail = f"attempt {body['attempt']}: {body['reason']} ({body.get('detail')})"
        return Change(event="attempt_ended", t=event.t, step=body.get("last_step"), detail=detail)
    return None
