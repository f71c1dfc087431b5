"""What happens where a phase of the curriculum ends and the next one begins.

A border has an evaluation, a checkpoint and a verdict. The verdict is drawn from what the border's
checkpoint records, so that an attempt that was killed right behind its save draws it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from trainer_runtime.core.config.curriculum import Curriculum, Phase
from trainer_runtime.core.protocol.trainer_lines import PhaseChanged

# In a checkpoint's metrics: the value that the success metric of its phase began with.
AT_START = "phase_start/"
WARN, STOP = "warn", "stop"

Emit = Callable[..., None]


class PhaseBorders:
    """Follows one attempt through the phases; does nothing in a run without them."""

    def __init__(self, curriculum: Curriculum, emit: Emit) -> None:
        self._curriculum = curriculum
        self._emit = emit
        self._phase = curriculum.phases[0]
        self._values: Mapping[str, float] = {}
        self._at_start: float | None = None

    def begin(self, step: int, metrics: Mapping[str, float], *, by_user: bool) -> str | None:
        """Takes up a run of which `step` steps are done, by the metrics of that step's checkpoint.

        `by_user`: somebody has resumed it, whom no earlier verdict stops. Returns what `end` does,
        where the border's verdict is still to be acted on.
        """
        self._values = metrics
        ended = self._curriculum.border_at(step)
        if ended is not None and not by_user:
            self._take(ended, metrics.get(AT_START + _metric(ended)))
            return self.end(step)
        self._enter(step)
        return None

    def needs_start_value(self, step: int) -> bool:
        """Whether the phase that begins after `step` is compared with an evaluation of then."""
        compares = _compares(self._phase)
        return compares and self._at_start is None and step == self._phase.begins

    def evaluation_is_due(self, step: int) -> bool:
        """True after every `eval.every_steps` steps, at the end of a phase and of the run."""
        config = self._curriculum.config
        every, batches = config.evaluation.every_steps, config.evaluation.batches
        ends = step == config.steps or self.is_border(step)
        return batches > 0 and (ends or bool(every and step % every == 0))

    def evaluated(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the values of an evaluation after `step` steps."""
        self._values = values
        if step == self._phase.begins and _compares(self._phase):
            self._at_start = values.get(_metric(self._phase))

    @property
    def checkpoint_metrics(self) -> dict[str, float]:
        """What a checkpoint of now records beside its own metrics."""
        return {} if self._at_start is None else {AT_START + _metric(self._phase): self._at_start}

    def is_border(self, step: int) -> bool:
        """Whether a phase ends with this step."""
        return step in self._curriculum.borders

    def end(self, step: int, of_mix: Sequence[int] = ()) -> str | None:
        """Ends the phase whose last step this was, and enters the next one.

        `of_mix`: how many sequences its mix has drawn of each source, in the configuration's order.
        Returns why the attempt has to end, in words, where the supervisor is to act; None else.
        """
        verdict = replace(self._verdict(), drawn=self._by_source(of_mix))
        self._emit("phase", step=step, action="end", **_fields(verdict))
        acts = verdict.met is False and verdict.on_miss != WARN
        # At the run's end nothing is left to be stopped.
        if acts and not (verdict.on_miss == STOP and step == self._curriculum.config.steps):
            return f"phase {verdict.name} ended after step {step}, {verdict.verdict}"
        self._enter(step)
        return None

    def _by_source(self, of_mix: Sequence[int]) -> dict[str, int]:
        sources = self._curriculum.config.data.sources
        return {source.name: n for source, n in zip(sources, of_mix, strict=False)}

    def _verdict(self) -> PhaseChanged:
        config, success = self._phase.config, self._phase.config.success
        if success is None:
            return PhaseChanged(config.name, ended=True)
        value = self._values.get(success.metric)
        return PhaseChanged(
            config.name,
            ended=True,
            metric=success.metric,
            value=value,
            limit=success.limit(self._at_start),
            at_start=self._at_start,
            met=success.is_met(math.nan if value is None else value, self._at_start),
            on_miss=config.on_miss,
        )

    def _enter(self, step: int) -> None:
        if not self._curriculum.has_phases or step == self._curriculum.config.steps:
            return
        phase = self._curriculum.phase_at(step + 1)
        metric = _metric(phase)
        self._take(phase, self._values.get(metric if step == phase.begins else AT_START + metric))
        self._emit("phase", step=step, action="begin", name=phase.name)

    def _take(self, phase: Phase, at_start: float | None) -> None:
        self._phase, self._at_start = phase, at_start if _compares(phase) else None


def _compares(phase: Phase) -> bool:
    success = phase.config.success
    return success is not None and success.not_worse_than_start_pct is not None


def _metric(phase: Phase) -> str:
    success = phase.config.success
    return "val_loss" if success is None else success.metric


def _fields(verdict: PhaseChanged) -> dict[str, object]:
    fields = asdict(verdict)
    del fields["ended"]
    return {name: value for name, value in fields.items() if value not in (None, {})}
