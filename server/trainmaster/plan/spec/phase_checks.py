"""Checks the phases of a curriculum, against each other and against the rest of the spec."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.fields.phases import PhaseSpec

_LONGEST = 100
_RAMPS = "`from` above 0 and at most 1, `over` above 0"


def phase_problems(spec: TrainingSpec, metrics: Sequence[str]) -> Iterator[Problem]:
    """What is wrong with the phases; `metrics`: those that an evaluation reports."""
    yield from _ramp_problems(spec)
    if spec.phases is None:
        return
    if not spec.phases or len(spec.phases) > _LONGEST:
        count = "is empty" if not spec.phases else f"lists {len(spec.phases)}"
        yield wrong_value("phases", f"{count}.", f"Give 1 to {_LONGEST} phases, or steps instead.")
    yield from _length_problems(spec, spec.phases)
    if spec.compute.min_nodes is not None and any(phase.batch for phase in spec.phases):
        yield wrong_value(
            "compute.min_nodes",
            "is given, but fewer nodes might not share the batch of every phase evenly.",
            "Leave it out, or give all phases the batch of the run.",
        )
    for index, phase in enumerate(spec.phases):
        field = f"phases[{index}]"
        if phase.name in [earlier.name for earlier in spec.phases[:index]]:
            problem = f"is {phase.name!r}, as is an earlier one's."
            yield wrong_value(f"{field}.name", problem, "Give every phase a unique name.")
        if "." in phase.name:
            yield wrong_value(f"{field}.name", f"is {phase.name!r}.", "Give a name without dots.")
        yield from _mix_problems(spec, phase, field)
        yield from _size_problems(spec, phase, field)
        yield from _success_problems(phase, field, metrics)


def _length_problems(spec: TrainingSpec, phases: Sequence[PhaseSpec]) -> Iterator[Problem]:
    for index, phase in enumerate(phases):
        if (phase.steps is None) == (phase.tokens is None):
            what = "has no end" if phase.steps is None else "gives both steps and tokens"
            fix = "Give it either steps or tokens, for example steps: 200."
            yield wrong_value(f"phases[{index}]", f"{what}.", fix)
    for unit in ("steps", "tokens"):
        total, parts = getattr(spec, unit), [getattr(phase, unit) for phase in phases]
        if total is None:
            continue
        whole = sum(parts) if None not in parts else None
        if total != whole:
            follows = f"the phases' {unit} sum to {whole}" if whole else "phases give the length"
            fix = f"Leave `{unit}` out{f', or set it to {whole}' if whole else ''}."
            yield wrong_value("phases", f"is given beside `{unit}` {total}, but {follows}.", fix)


def _mix_problems(spec: TrainingSpec, phase: PhaseSpec, field: str) -> Iterator[Problem]:
    if phase.sources is None:
        return
    names = [source.name or "" for source in spec.data.sources]
    for name in phase.sources:
        if name not in names:
            yield wrong_value(
                f"{field}.sources.{name}", "names no source.", f"Sources are {', '.join(names)}."
            )
    if not sum(phase.sources.values()):
        yield wrong_value(
            f"{field}.sources", "sums to nothing.", "Give at least one source a weight above 0."
        )


def _size_problems(spec: TrainingSpec, phase: PhaseSpec, field: str) -> Iterator[Problem]:
    longest = spec.data.seq_len
    length = phase.seq_len or longest
    if longest % length:
        yield wrong_value(
            f"{field}.seq_len",
            f"is {length}, but the model is made for `data.seq_len` {longest}.",
            f"Give {longest} or a divisor of it; for longer sequences raise data.seq_len.",
        )
    batch = phase.batch or spec.step_tokens
    if batch < length:
        yield wrong_value(
            f"{field}.batch",
            f"is {batch}, less than one sequence of {length} tokens.",
            f"Set it to at least {length}.",
        )
    if phase.tokens is not None and phase.tokens < batch:
        yield wrong_value(
            f"{field}.tokens",
            f"is {phase.tokens}, less than one step of {batch} tokens.",
            f"Set it to at least {batch}.",
        )
    warmup = getattr(phase.lr, "warmup_steps", 0)
    if phase.steps is not None and warmup > phase.steps:
        yield wrong_value(
            f"{field}.lr.warmup_steps",
            f"is {warmup}, longer than the phase of {phase.steps} steps.",
            f"Set it to at most {phase.steps}.",
        )


def _success_problems(phase: PhaseSpec, field: str, metrics: Sequence[str]) -> Iterator[Problem]:
    success = phase.success
    if success is None:
        if phase.on_miss != "warn":
            yield wrong_value(
                f"{field}.on_miss",
                f"is {phase.on_miss}, but the phase has no success to miss.",
                "Give success, for example {metric: val_loss, below: 3.0}, or leave on_miss out.",
            )
        return
    reported = [name for name in metrics if name != "auto"]
    if success.metric not in reported:
        yield wrong_value(
            f"{field}.success.metric",
            f"is {success.metric!r}, which nothing reports.",
            f"It takes one of {', '.join(reported)}.",
        )
    if success.below is None and success.not_worse_than_start_pct is None:
        yield wrong_value(
            f"{field}.success",
            "limits nothing.",
            "Give below, not_worse_than_start_pct, or both.",
        )


def _ramp_problems(spec: TrainingSpec) -> Iterator[Problem]:
    ramp = spec.batch.ramp
    if ramp in (None, "auto"):
        return
    if not getattr(ramp, "from") or not getattr(ramp, "over"):  # noqa: B009
        yield wrong_value("batch.ramp", "has a share of 0.", f"Give {_RAMPS}, or auto.")
