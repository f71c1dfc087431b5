"""How events of trainer, journal and log change the detectors' state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors import not_copied, unmatched
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.detector_set import DetectorSet
from trainer_runtime.core.diagnosis.detectors.resumed import changes_the_loss
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.core.protocol.trainer_lines import Decided, RanksAggregated

EventHandler = Callable[[DetectorContext, DetectorSet, int, Fields], None]


def _attempt_starting(
    context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields
) -> None:
    attempt = fields.find_integer("attempt")
    if attempt is not None and attempt != context.ledger.attempt:
        detectors.begin(context, attempt, context.step)
    detectors.resumed.is_changed = changes_the_loss(fields.open_map("set"))
    context.finished = True  # no step is expected during preparation


def _started(context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields) -> None:
    detectors.begin(context, fields.integer("attempt", context.ledger.attempt), step)
    context.target_step = fields.find_integer("target_step")


def _resumed(context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields) -> None:
    detectors.begin(context, context.ledger.attempt, step)


def _eval(context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields) -> None:
    detectors.pace.pause(step, detectors.stall.silent_s)
    detectors.stall.progressed(context, context.step)


def _checkpoint(
    context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields
) -> None:
    action = fields.text("action", "saved")  # logs mention saves only
    context.checkpoint(action, step, fields.find_integer("size_bytes"))
    if action == "saved":
        detectors.pace.pause(step, detectors.stall.silent_s)
        detectors.checkpoints.saved(context, step)
        unmatched.saved(context, step)
        if context.saves <= (context.settings.keeps_checkpoints or 0):
            detectors.disk.restart()  # checkpoints that are kept as planned aren't a trend
        detectors.resumed.note(context, step, detectors.spike.outlier.window)
    detectors.stall.progressed(context, context.step)


def _phase(context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields) -> None:
    detectors.new_phase(context)


def _warning(context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields) -> None:
    detectors.nonfinite.warned(context, fields.text("code", ""), step)


def _decision(context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields) -> None:
    decided = Decided.of(fields)
    if decided.what in (unmatched.CHECKPOINTS, unmatched.LOG):
        unmatched.noticed(context, decided.what, step, fields)
        return
    if decided.what in not_copied.DECISIONS:
        not_copied.noticed(context, decided.what, step, fields)
        return
    every = decided.value
    if decided.what != "checkpoint_every" or every is None:
        return
    with suppress(ValueError):
        seconds = parse_duration(every) if isinstance(every, str) else None
        detectors.checkpoints.decided(every, seconds)


def _ranks(context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields) -> None:
    if "ranks" in fields.values:
        detectors.slow_rank.aggregate(context, RanksAggregated.of(fields))


def _ended(context: DetectorContext, detectors: DetectorSet, step: int, fields: Fields) -> None:
    context.finished = True
    for code in ("stall", "checkpoint_overdue", "gpu_idle", "gpu_throttled"):
        context.ledger.close(code, context.step)


EVENT_HANDLERS: Mapping[str, EventHandler] = {
    "attempt_starting": _attempt_starting,
    "started": _started,
    "resumed": _resumed,
    "eval": _eval,
    "checkpoint": _checkpoint,
    "phase": _phase,
    "warning": _warning,
    "decision": _decision,
    "rank_metric": _ranks,
    "completed": _ended,
    "attempt_ended": _ended,
}
