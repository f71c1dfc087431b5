"""Decides the phases of a curriculum: their steps, batches and rates, and shows them as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.curriculum import Curriculum, Phase
from trainer_runtime.core.protocol.figures import number_text, share_text
from trainmaster.errors.errors import PlanError
from trainmaster.plan.corpus_facts import CorpusFacts
from trainmaster.plan.decisions.hyperparameters import Batch, choose_micro_batch
from trainmaster.plan.decisions.length import choose_steps
from trainmaster.plan.decisions.method import Method
from trainmaster.plan.fields.phases import PhaseSpec
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_RAMP = {"from": 0.25, "over": 0.05}
_RAMP_SOURCE = "Brown et al. 2020 (GPT-3), section 2.3: the batch grows over the first tokens"
_LEVELS = "▁▂▃▄▅▆▇█"
_PICTURE_WIDTH = 40

Resolved = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Course:
    """The length of a training: its steps and tokens, by phases and a ramp where it has these."""

    steps: int
    tokens: int
    phases: list[Resolved]
    ramp: Resolved | None


def choose_course(
    spec: TrainingSpec, batch: Batch, method: Method, corpus: CorpusFacts, ledger: Ledger
) -> Course:
    """Raises:
    PlanError: INVALID_VALUE, the number of examples is not known.
    """
    phases = _choose_phases(spec, batch, ledger)
    steps = sum(phase["steps"] for phase in phases)
    if not phases:
        steps = choose_steps(spec, batch, method, corpus, ledger)
    ramp = _choose_ramp(spec, steps, ledger)
    return Course(steps, _tokens(spec, batch, steps, phases, ramp), phases, ramp)


def _tokens(
    spec: TrainingSpec,
    batch: Batch,
    steps: int,
    phases: Sequence[Resolved],
    ramp: Resolved | None,
) -> int:
    sizes = {"micro_batch": batch.micro_batch, "accumulation": batch.accumulation, "ramp": ramp}
    config = {
        "steps": steps,
        "phases": list(phases),
        "batch": sizes,
        "data": {"seq_len": spec.data.seq_len},
        "compute": {"processes": batch.processes},
    }
    return curriculum_of(config).tokens_before(steps)


def _choose_phases(spec: TrainingSpec, batch: Batch, ledger: Ledger) -> list[Resolved]:
    """The phases as the configuration has them, but for their rates; none where the spec has none.

    A step is rounded down to whole micro-batches, as the run's own is.
    """
    phases = [_sized(phase, spec, batch) for phase in spec.phases or ()]
    if phases:
        steps = sum(phase["steps"] for phase in phases)
        ledger.decide("steps", steps, f"The sum of {len(phases)} phases.")
    for index, phase in enumerate(spec.phases or ()):
        if phase.tokens is not None:
            tokens = phases[index]["sequences"] * phases[index]["seq_len"]
            reason = f"{phase.tokens:,} tokens at {tokens:,} a step."
            ledger.decide(f"phases.{phase.name}.steps", phases[index]["steps"], reason)
    return phases


def refuse_sizes(spec: TrainingSpec, strategy: str) -> None:
    """Check that the strategy can take steps of several sizes, where the phases have them.

    Raises:
        PlanError: INVALID_VALUE, it is DeepSpeed's.
    """
    sizes = {(phase.batch, phase.seq_len) for phase in spec.phases or ()}
    differ = len(sizes) > 1 or spec.batch.ramp is not None
    if differ and strategy.startswith("zero"):
        raise PlanError(
            "INVALID_VALUE",
            f"`compute.strategy` is {strategy}, and DeepSpeed takes all steps in one size, but "
            "the phases or batch.ramp give several.",
            "Set compute.strategy to ddp or fsdp, or give all phases one batch and seq_len.",
            field="compute.strategy",
        )


def with_rates(phases: Sequence[Resolved], spec: TrainingSpec, peak: float) -> list[Resolved]:
    """The phases with their rates as shares of `peak`, which a patch of the run's rate scales."""
    rates = [_rate(phase, peak) for phase in spec.phases or ()]
    return [{**phase, "lr": rate} for phase, rate in zip(phases, rates, strict=True)]


def _choose_ramp(spec: TrainingSpec, steps: int, ledger: Ledger) -> Resolved | None:
    """The stages of a growing batch."""
    ramp = spec.batch.ramp
    if ramp is None:
        return None
    shares = _RAMP if ramp == "auto" else ramp.model_dump()
    over = max(1, round(shares["over"] * steps))
    if ramp == "auto":
        reason = f"A quarter of the batch, growing over the first {over:,} of {steps:,} steps."
        ledger.decide("batch.ramp", {"from": shares["from"], "steps": over}, reason, _RAMP_SOURCE)
    return {"from": shares["from"], "steps": over}


def curriculum_of(config: Mapping[str, Any]) -> Curriculum:
    """The curriculum of a resolved configuration."""
    return Curriculum.of(RunConfig.parse(config))


def curriculum_table(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The phases by columns, with a picture of mix and rate over the steps; None without phases."""
    curriculum = curriculum_of(config)
    if not curriculum.has_phases:
        return None
    rows = [_row(phase, curriculum) for phase in curriculum.phases]
    names = [source.name for source in curriculum.config.data.sources]
    steps = _shown_steps(curriculum.config.steps)
    shares = [curriculum.weights(step) for step in steps]
    picture = {"lr": _picture([curriculum.rate(step) for step in steps])}
    if len(names) > 1:
        for index, name in enumerate(names):
            picture[name] = _picture([mix[index] / sum(mix) for mix in shares], most=1.0)
    columns = {column: [row[column] for row in rows] for column in rows[0]}
    return {**{name: held for name, held in columns.items() if any(held)}, "picture": picture}


def _sized(phase: PhaseSpec, spec: TrainingSpec, batch: Batch) -> Resolved:
    seq_len = phase.seq_len or spec.data.seq_len
    sequences = batch.sequences
    if phase.batch is not None or phase.seq_len is not None:
        of_rank = max(1, (phase.batch or batch.tokens) // seq_len // batch.processes)
        pieces = choose_micro_batch(of_rank, batch.micro_batch * spec.data.seq_len // seq_len)
        sequences = of_rank // pieces * pieces * batch.processes
    steps = phase.steps or max(1, (phase.tokens or 0) // (sequences * seq_len))
    return {
        "name": phase.name,
        "steps": steps,
        "sequences": sequences,
        "seq_len": seq_len,
        "sources": phase.sources,
        "lr_scale": 1.0,
        "success": None if phase.success is None else phase.success.model_dump(mode="json"),
        "on_miss": phase.on_miss,
        "tries": 0,
    }


def _rate(phase: PhaseSpec, peak: float) -> Resolved | None:
    if phase.lr is None:
        return None
    if isinstance(phase.lr, float | int):
        share = phase.lr / peak
        return {"kind": "constant", "from": share, "to": share, "warmup_steps": 0}
    rate = phase.lr.model_dump(mode="json")
    shares = {end: None if rate[end] is None else rate[end] / peak for end in ("from", "to")}
    return {**rate, **shares}


def _row(phase: Phase, curriculum: Curriculum) -> dict[str, Any]:
    config = phase.config
    mix = curriculum.weights(phase.ends)
    names = [source.name for source in curriculum.config.data.sources]
    read = [(name, weight) for name, weight in zip(names, mix, strict=True) if weight]
    shares = [f"{name} {share_text(weight / sum(mix))}" for name, weight in read]
    rates = [number_text(curriculum.rate(step)) for step in (phase.begins + 1, phase.ends)]
    shape = curriculum.shape(phase.ends)
    tokens = curriculum.tokens_before(phase.ends) - curriculum.tokens_before(phase.begins)
    return {
        "phase": phase.name,
        "steps": config.steps,
        "tokens": tokens,
        "mix": " ".join(shares) if len(mix) > 1 else None,
        "lr": " → ".join(dict.fromkeys(rates)),
        "batch": curriculum.tokens(phase.ends),
        "micro_batch": f"{shape.micro_batch}x{shape.accumulation}",
        "seq_len": shape.seq_len,
        "success": None if config.success is None else _success(config.success),
        "on_miss": None if config.success is None else config.on_miss,
    }


def _success(success: Any) -> str:
    limits = []
    if success.below is not None:
        limits.append(f"below {success.below:g}")
    if success.not_worse_than_start_pct is not None:
        limits.append(f"at most {success.not_worse_than_start_pct:g} % above its start")
    return f"{success.metric} {', '.join(limits)}"


def _shown_steps(steps: int) -> list[int]:
    width = min(_PICTURE_WIDTH, steps)
    return [1 + index * (steps - 1) // max(1, width - 1) for index in range(width)]


def _picture(values: Sequence[float], most: float | None = None) -> str:
    highest = most or max(values) or 1.0
    return "".join(_LEVELS[round(value / highest * (len(_LEVELS) - 1))] for value in values)
