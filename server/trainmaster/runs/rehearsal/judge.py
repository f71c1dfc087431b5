"""Judges a rehearsal by what was recorded of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import number_text, rounded
from trainer_runtime.core.protocol.progress import Progress
from trainmaster.answers.rehearsal import RehearsalCheck, Verdict

# Attempt to step to value.
Series = Mapping[int, Mapping[int, float]]

_COMPARES = frozenset({"dpo", "kto", "reward", "grpo"})
_USUAL_NORMS = (0.1, 10.0)
_MOST_GROWTH = 5.0
_RATE_TOLERANCE = 1e-3
# A GPU adds in varying order; what was not restored shows in more.
_ROUNDING = 1e-3
_FEWEST_POINTS = 8
_MOST_MEMORY, _LEAST_SPEED = 1.25, 0.5


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What is on record of a rehearsal that has ended.

    `failure` and `remedy`: what it failed by, where it did; `values`: series by key; `estimates`:
    of the plan; `kind`: as `plan.rehearsal` has it.
    """

    config: RunConfig
    kind: str
    completed: bool
    attempts: Sequence[Progress]
    values: Mapping[str, Series]
    estimates: Mapping[str, float]
    failure: str | None = None
    remedy: str | None = None

    def newest(self, key: str) -> list[tuple[int, float]]:
        """The values by steps, each of the newest attempt."""
        merged: dict[int, float] = {}
        for attempt in sorted(self.values.get(key, {})):
            merged.update(self.values[key][attempt])
        return sorted(merged.items())

    @property
    def is_program(self) -> bool:
        return self.config.script is not None

    @property
    def on_gpu(self) -> bool:
        return bool(self.config.compute.gpus)


def judge(rehearsed: Rehearsed) -> list[RehearsalCheck]:
    """Each check of a rehearsal with its figures."""
    checks: Sequence[tuple[str, Callable[[Rehearsed], _Outcome]]] = (
        ("run", _run),
        ("data", _data),
        ("loss", _loss),
        ("gradients", _gradients),
        ("rate", _rate),
        ("resume", _resume),
        ("evaluation", _evaluation),
        ("export", _export),
        ("memory", _memory),
        ("throughput", _throughput),
    )
    judged = []
    for name, check in checks:
        outcome = check(rehearsed)
        judged.append(
            RehearsalCheck(
                name=name, verdict=outcome.verdict, detail=outcome.detail, remedy=outcome.remedy
            )
        )
    return judged


def verdict_of(checks: Sequence[RehearsalCheck]) -> Verdict:
    """Failed with any check."""
    return "failed" if any(check.verdict == "failed" for check in checks) else "passed"


@dataclass(frozen=True, slots=True)
class _Outcome:
    verdict: Verdict
    detail: str
    remedy: str | None = None


def _passed(detail: str) -> _Outcome:
    return _Outcome("passed", detail)


def _failed(detail: str, remedy: str) -> _Outcome:
    return _Outcome("failed", detail, remedy)


def _not_judged(detail: str) -> _Outcome:
    return _Outcome("not judged", detail)


def _run(rehearsed: Rehearsed) -> _Outcome:
    step = max((progress.step for progress in rehearsed.attempts), default=0)
    steps = f"step {step} of {rehearsed.config.steps}"
    if rehearsed.completed:
        return _passed(f"{steps}; packages, data and model were there")
    return _failed(
        f"it ended at {steps}, {rehearsed.failure or 'no reason is on record'}",
        rehearsed.remedy or "Read its log, then rehearse again.",
    )


def _data(rehearsed: Rehearsed) -> _Outcome:
    if rehearsed.is_program:
        return _not_judged("the program reads its data by itself")
    if not any(progress.started_at_step is not None for progress in rehearsed.attempts):
        return _not_judged("the training was not reached")
    if rehearsed.config.data.prepare == "stream":
        return _not_judged("it is streamed: its end is read in the training alone")
    return _passed("prepared to its end, and tokenized")


def _loss(rehearsed: Rehearsed) -> _Outcome:
    points = rehearsed.newest("loss")
    losses = [loss for _, loss in points]
    bad = next((step for step, loss in points if not math.isfinite(loss)), None)
    if bad is not None:
        return _failed(f"not finite at step {bad}", _LOWER_RATE)
    if rehearsed.config.method == "grpo":
        return _not_judged("the loss of grpo does not fall as its reward rises")
    if len(losses) < _FEWEST_POINTS:
        return _not_judged(f"{len(losses)} losses are on record")
    if not any(losses):
        return _failed(
            f"0 at each of {len(losses)} steps",
            "No token is learnt from: check which labels are masked, and whether prompts fill "
            "data.seq_len.",
        )
    size = max(3, len(losses) // 5)
    first, last = fmean(losses[:size]), fmean(losses[-size:])
    detail = f"{number_text(first)} to {number_text(last)} over {len(losses)} steps"
    noise = _noise(losses) * math.sqrt(2 / size)
    if first - last > 2 * noise and first > last:
        return _passed(detail)
    if _starts_from_weights(rehearsed) and last - first <= 2 * noise:
        return _not_judged(f"{detail}: no more than its noise of {number_text(noise)}")
    return _failed(
        f"{detail}: it does not fall",
        "Check that the rate is not zero, that the optimizer has the model's parameters, and that "
        f"labels belong to their inputs; {command('lr-test', 'SPEC')} finds a rate.",
    )


_LOWER_RATE = (
    "Lower the rate or lengthen the warm-up, and check the data for broken rows; bf16 instead of "
    "fp16 avoids overflow."
)


def _noise(losses: Sequence[float]) -> float:
    """The deviation of a single loss, by the differences of neighbours."""
    differences = [after - before for before, after in pairwise(losses)]
    return math.sqrt(fmean([difference**2 for difference in differences]) / 2)


def _starts_from_weights(rehearsed: Rehearsed) -> bool:
    model = rehearsed.config.model
    return bool(model.path or model.hub) or rehearsed.config.adapter is not None


def _gradients(rehearsed: Rehearsed) -> _Outcome:
    points = rehearsed.newest("grad_norm")
    norms = [norm for _, norm in points][len(points) // 10 :]
    if len(norms) < _FEWEST_POINTS:
        return _not_judged("its norms are not on record")
    if not all(map(math.isfinite, norms)):
        return _failed("norms that are not finite", _LOWER_RATE)
    quarter = len(norms) // 4
    usual, end = median(norms[quarter : 2 * quarter]), median(norms[-quarter:])
    detail = f"median {number_text(median(norms))}, at most {number_text(max(norms))}"
    if end > _MOST_GROWTH * usual and end > 1:
        return _failed(f"{detail}; they grow to {number_text(end)}", _LOWER_RATE)
    low, high = _USUAL_NORMS
    if low <= median(norms) <= high or rehearsed.config.method in _COMPARES:
        return _passed(detail)
    return _failed(
        f"{detail}; usual is {low:g} to {high:g}",
        "Check how the loss is scaled (a mean over tokens, not a sum), initial weights and "
        "precision.",
    )


def _rate(rehearsed: Rehearsed) -> _Outcome:
    points = rehearsed.newest("lr")
    if not points:
        return _not_judged("the rate is not on record")
    rates = [rate for _, rate in points]
    detail = f"{number_text(rates[0])} to {number_text(rates[-1])}"
    if not any(rates):
        return _failed("the rate is 0 at every step", "Check the optimizer's and the schedule's.")
    if rehearsed.is_program:
        return _not_judged(f"{detail}: by the program's own schedule")
    curriculum = Curriculum.of(rehearsed.config)
    peak = max(curriculum.rate(step) for step, _ in points)
    off = [
        step
        for step, rate in points
        if abs(rate - curriculum.rate(step)) > _RATE_TOLERANCE * max(peak, 1e-12)
    ]
    if not off:
        return _passed(f"{detail}, as scheduled")
    planned = number_text(curriculum.rate(off[0]))
    return _failed(
        f"{number_text(dict(points)[off[0]])} at step {off[0]}, scheduled is {planned}",
        "Check what else sets the rate: method_args, or a script that was changed.",
    )


def _resume(rehearsed: Rehearsed) -> _Outcome:
    resumed = [progress for progress in rehearsed.attempts if progress.attempt > 1]
    if not resumed:
        return _without_resume(rehearsed)
    begins = resumed[0].started_at_step
    if begins is None:
        return _failed("the process that was to resume failed", rehearsed.remedy or _STATE)
    if begins == 0:
        return _not_judged("it starts over when it is killed: `script.resume` is not given")
    losses = rehearsed.values.get("loss", {})
    before, after = losses.get(1, {}), losses.get(resumed[0].attempt, {})
    repeated = [
        step
        for step in sorted(before)
        if step > begins
        and math.isfinite(before[step])
        and math.isfinite(after.get(step, math.nan))
    ]
    if not repeated and not after and not rehearsed.completed:
        return _failed(f"resumed at step {begins}, it took no step", rehearsed.remedy or _STATE)
    if not repeated:
        return _not_judged(f"no step behind the checkpoint of step {begins} was taken twice")
    off = max(abs(before[step] - after[step]) / max(abs(before[step]), 1e-9) for step in repeated)
    span = f"{len(repeated)} losses after the checkpoint of step {begins}"
    if off == 0:
        return _passed(f"{span} are bit-equal in a new process")
    if rehearsed.on_gpu and off <= _ROUNDING:
        return _passed(f"{span} are equal within {number_text(off, 1)}, a GPU's rounding")
    return _failed(f"{span} differ by up to {number_text(100 * off, 2)} %", _STATE)


_STATE = (
    "Save and restore the optimizer's and the schedule's state, random numbers and the place in "
    "the data, besides the weights."
)


def _without_resume(rehearsed: Rehearsed) -> _Outcome:
    script = rehearsed.config.script
    if script is not None and script.saves is None:
        return _not_judged("`script.checkpoints` names none: a crash starts it over")
    if rehearsed.completed:
        return _not_judged("it saved no checkpoint early enough to continue from")
    return _not_judged("it came to no checkpoint to continue from")


def _evaluation(rehearsed: Rehearsed) -> _Outcome:
    best = {key: at for progress in rehearsed.attempts for key, at in progress.best.items()}
    if best:
        key, (value, step) = next(iter(best.items()))
        return _passed(f"{key.partition('/')[0]} {number_text(value)} at step {step}")
    if rehearsed.is_program or not rehearsed.completed:
        return _not_judged("none is on record")
    return _failed("none is on record", "Give it held-out data, or check eval.")


def _export(rehearsed: Rehearsed) -> _Outcome:
    finals = [progress.final for progress in rehearsed.attempts if progress.final]
    if finals:
        return _passed("the model was written")
    script = rehearsed.config.script
    if not rehearsed.completed or script is not None:
        return _not_judged("the training's end was not reached")
    return _failed("no final model was written", "Read the end of its log.")


def _memory(rehearsed: Rehearsed) -> _Outcome:
    points = rehearsed.newest("peak_memory_gib")
    planned = rehearsed.estimates.get("memory_gib")
    if not points or planned is None or rehearsed.kind == "tiny":
        return _not_judged(_beside("not measured", planned, "GiB"))
    used = max(value for _, value in points)
    detail = _beside(f"{number_text(rounded(used, 3))} GiB", planned, "GiB")
    if used <= _MOST_MEMORY * planned:
        return _passed(detail)
    return _failed(detail, "Halve batch.micro_batch, or recompute activations.")


def _throughput(rehearsed: Rehearsed) -> _Outcome:
    speeds = [speed for _, speed in rehearsed.newest("tokens_per_s")]
    planned = rehearsed.estimates.get("tokens_per_s")
    if len(speeds) < _FEWEST_POINTS:
        return _not_judged("not on record")
    speed = median(speeds[len(speeds) // 2 :])
    detail = _beside(f"{number_text(round(speed))} tokens/s", planned, "tokens/s")
    if planned is None or not rehearsed.on_gpu or rehearsed.kind == "tiny":
        return _not_judged(detail)
    if speed >= _LEAST_SPEED * planned:
        return _passed(detail)
    return _failed(
        detail,
        "It would take more than twice the planned time: check data loading, what else uses "
        "the GPU, and compute.compile; or plan again with this speed.",
    )


def _beside(measured: str, planned: float | None, unit: str) -> str:
    return measured if planned is None else f"{measured}; planned {number_text(planned)} {unit}"
