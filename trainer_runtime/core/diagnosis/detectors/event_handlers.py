"""How events of trainer, journal and log change the position that all detectors share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.detector_set import DetectorSet

EventHandler = Callable[[DetectorContext, DetectorSet, int, Fields], None]


def _attempt_starting(
    context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields
) -> None:
    attempt = fields.find_integer("attempt")
    if attempt is not None and attempt != context.ledger.attempt:
        detectors.begin(context, attempt, context.step)
    context.finished = True  # no step is expected during preparation


def _started(context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields) -> None:
    detectors.begin(context, fields.integer("attempt", context.ledger.attempt), step)
    context.target_step = fields.find_integer("target_step")


def _resumed(context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields) -> None:
    detectors.begin(context, context.ledger.attempt, step)


def _checkpoint(
    context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields
) -> None:
    context.checkpoint(
        fields.text("action", "saved"),  # logs mention saves only
        step,
        fields.find_integer("size_bytes"),
    )


def _phase(context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields) -> None:
    detectors.new_phase(context)


def _ended(context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields) -> None:
    detectors.end(context)


EVENT_HANDLERS: Mapping[str, EventHandler] = {
    "attempt_starting": _attempt_starting,
    "started": _started,
    "resumed": _resumed,
    "checkpoint": _checkpoint,
    "phase": _phase,
    "completed": _ended,
    "attempt_ended": _ended,
}
