"""What tests of the record share: events as the box writes them, and what they fold into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import Event, decode, encode
from trainer_runtime.core.protocol.progress import Progress

Told = tuple[str, Mapping[str, Any]]

FIRST_T = 1_700_000_000.0


def lines(told: Iterable[Told], *, first_t: float = FIRST_T) -> list[bytes]:
    """The lines of (kind, fields), one second apart."""
    return [encode(seq, first_t + seq, kind, fields) for seq, (kind, fields) in enumerate(told)]


def events(told: Iterable[Told], *, first_t: float = FIRST_T) -> list[Event]:
    return [decode(line) for line in lines(told, first_t=first_t)]


def progress(attempt: int, *told: Told) -> Progress:
    """The progress that an attempt's events add up to."""
    folded = Progress(attempt)
    for event in events(told):
        folded.apply(event)
    return folded


def record(*told: Told) -> Record:
    """The record that a journal's events add up to."""
    folded = Record()
    for event in events(told):
        folded.apply(event)
    return folded


def started(step: int = 0, target: int = 100, **fields: Any) -> Told:
    resumed_from = step or None
    return "started", {"step": step, "target_step": target, "resumed_from": resumed_from, **fields}


def metric(step: int, loss: float = 2.5, **values: float) -> Told:
    return "metric", {"step": step, "values": {"loss": loss, **values}}


def evaluation(step: int, val_loss: float) -> Told:
    return "eval", {"step": step, "values": {"val_loss": val_loss}, "batches": 2, "seconds": 0.5}


def saved(step: int, val_loss: float | None = None, size_bytes: int = 1 << 20) -> Told:
    metrics = {} if val_loss is None else {"val_loss": val_loss}
    path = f"checkpoints/step-{step:08d}"
    told = {"step": step, "path": path, "size_bytes": size_bytes, "metrics": metrics}
    return "checkpoint", {"action": "saved", **told}


def verified(step: int) -> Told:
    return "checkpoint", {"action": "verified", "step": step}


def kept(step: int, val_loss: float | None = None) -> tuple[Told, Told]:
    """A checkpoint saved and read back."""
    return saved(step, val_loss), verified(step)


def pruned(step: int) -> Told:
    return "checkpoint", {"action": "pruned", "step": step}


def failed(step: int, reason: str) -> Told:
    return "checkpoint", {"action": "failed", "step": step, "reason": reason}


def attempt_starting(number: int, generation: int = 1, **fields: Any) -> Told:
    told = {"why": "launch", "mode": "latest", "candidates": [], "set": {}, "skip": None}
    return "attempt_starting", {"attempt": number, "generation": generation, **told, **fields}


def attempt_ended(number: int, reason: str, **fields: Any) -> Told:
    return "attempt_ended", {"attempt": number, "reason": reason, **fields}


def state(name: str, **fields: Any) -> Told:
    return "state", {"state": name, **fields}
