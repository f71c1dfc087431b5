"""A phase that ended without its success, where nothing but this finding follows: `phase_missed`.

No threshold of ours: the spec's `success` is the measure. Where `on_miss` stops, extends or rolls
back, the supervisor acts by it instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.detector import (
    REWIND,
    Code,
    Detector,
    is_finite,
)
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.text import code_word
from trainer_runtime.core.protocol.trainer_lines import PhaseChanged

_AGAIN = command("resume", "RUN", "--from", "STEP", "--set", "phases.NAME.steps=…")
_CODES = {
    "phase_missed": Code(
        "A phase of the curriculum ended without its success, and the training continued.",
        (
            "phase {phase} ended after step {step}",
            "{metric} {value} at its end, and {limit} at most was asked for",
            "{at_start} at its start",
            "the checkpoint of its start is that of step {begins}",
        ),
        (
            "If the limit was too strict, nothing has to be done.",
            "Train it again from the checkpoint of its start, which is kept, with more steps or "
            f"another rate or mix: {_AGAIN}.",
            "Set `on_miss` of the phases to come to extend or rollback, so that the host acts.",
        ),
        closed_by=(REWIND,),
    ),
}


@dataclass(slots=True)
class MissedPhase(Detector):
    codes = _CODES
    events = ("phase",)

    def event(self, context: DetectorContext, kind: str, step: int, fields: Fields) -> None:
        line = PhaseChanged.of(fields)
        # At the run's end nothing is left to be stopped.
        follows = line.on_miss == "warn" or (line.on_miss == "stop" and step == context.target_step)
        if not line.ended or line.met is not False or not follows:
            return
        context.ledger.close("phase_missed", step)  # of the phase before
        context.ledger.open(
            "phase_missed",
            step,
            "warning",
            step=step,
            confidence=1.0,
            values={
                "phase": code_word(line.name),
                "step": step,
                "metric": "/".join(map(code_word, (line.metric or "").split("/"))),
                "value": _finite(line.value),
                "limit": line.limit,
                "at_start": line.at_start,
                "begins": _begins(context, step),
            },
        )


def _finite(value: float | None) -> float | None:
    return value if value is not None and is_finite(value) else None


def _begins(context: DetectorContext, ends: int) -> str | None:
    """After which step the phase began that ends with this one; None without a checkpoint there."""
    if not context.settings.config.get("phases"):
        return None
    curriculum = Curriculum.of(RunConfig.parse(context.settings.config))
    begins = curriculum.phase_at(ends).begins
    return str(begins) if begins else None
