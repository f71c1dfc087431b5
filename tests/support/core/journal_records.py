"""Builders of journal and trainer events for tests, and their folded records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import Event, decode, encode
from trainer_runtime.core.protocol.progress import Progress

EventBody = tuple[str, Mapping[str, Any]]  # kind, fields

FIRST_T = 1_700_000_000.0


def lines(bodies: Iterable[EventBody], *, first_t: float = FIRST_T) -> list[bytes]:
    """The encoded events, one second apart."""
    return [encode(seq, first_t + seq, kind, fields) for seq, (kind, fields) in enumerate(bodies)]


def events(bodies: Iterable[EventBody], *, first_t: float = FIRST_T) -> list[Event]:
    return [decode(line) for line in lines(bodies, first_t=first_t)]


def progress(attempt: int, *bodies: EventBody) -> Progress:
    """The folded progress of an attempt's events."""
    folded = Progress(attempt)
    for event in events(bodies):
        folded.apply(event)
    return folded


def record(*bodies: EventBody) -> Record:
    """The folded record of a journal's events."""
    folded = Record()
    for event in events(bodies):
        folded.apply(event)
    return folded


def started(step: int = 0, target: int = 100, **fields: Any) -> EventBody:
    resumed_from = step or None
    return "started", {"step": step, "target_step": target, "resumed_from": resumed_from, **fields}


def metric(step: int, loss: float = 2.5, **values: float) -> EventBody:
    return "metric", {"step": step, "values": {"loss": loss, **values}}


def evaluation(step: int, val_loss: float) -> EventBody:
    return "eval", {"step": step, "values": {"val_loss": val_loss}, "batches": 2, "seconds": 0.5}


def saved(step: int, val_loss: float | None = None, size_bytes: int = 1 << 20) -> EventBody:
    metrics = {} if val_loss is None else {"val_loss": val_loss}
    path = f"checkpoints/step-{step:08d}"
    fields = {"step": step, "path": path, "size_bytes": size_bytes, "metrics": metrics}
    return "checkpoint", {"action": "saved", **fields}


def verified(step: int) -> EventBody:
    return "checkpoint", {"action": "verified", "step": step}


def kept(step: int, val_loss: float | None = None) -> tuple[EventBody, EventBody]:
    """A checkpoint that is saved and verified."""
    return saved(step, val_loss), verified(step)


def pruned(step: int) -> EventBody:
    return "checkpoint", {"action": "pruned", "step": step}


def failed(step: int, reason: str) -> EventBody:
    return "checkpoint", {"action": "failed", "step": step, "reason": reason}


def attempt_starting(number: int, generation: int = 1, **fields: Any) -> EventBody:
    defaults = {"why": "launch", "mode": "latest", "candidates": [], "set": {}, "skip": None}
    return "attempt_starting", {"attempt": number, "generation": generation, **defaults, **fields}


def attempt_ended(number: int, reason: str, **fields: Any) -> EventBody:
    return "attempt_ended", {"attempt": number, "reason": reason, **fields}


def state(name: str, **fields: Any) -> EventBody:
    return "state", {"state": name, **fields}
