"""What each optimizer step of a run is: its phase, learning rate, mix, batch and length.

Pure functions of the configuration and the step, counted from 1: nothing is kept between steps, so
that a resumed run needs no state of a schedule. A run without phases is one phase without a name.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from trainer_runtime.core.config.lr_schedule import SCHEDULES
from trainer_runtime.core.config.phases import PhaseConfig, PhaseRate
from trainer_runtime.core.config.run_config import RunConfig


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase with its place: its steps are `begins` + 1 to `ends`."""

    begins: int
    ends: int
    config: PhaseConfig

    @property
    def name(self) -> str:
        return self.config.name


@dataclass(frozen=True, slots=True)
class Shape:
    """A step of one rank: `accumulation` passes of `micro_batch` sequences of `seq_len` tokens."""

    micro_batch: int
    accumulation: int
    seq_len: int


@dataclass(frozen=True, slots=True)
class _Stage:
    """Consecutive steps, up to `ends`, of one shape."""

    ends: int
    shape: Shape
    processes: int

    @property
    def sequences(self) -> int:
        return self.shape.micro_batch * self.shape.accumulation * self.processes


@dataclass(frozen=True, slots=True)
class Curriculum:
    """`has_phases`: whether the run has phases of its own."""

    config: RunConfig
    phases: tuple[Phase, ...]
    has_phases: bool
    _stages: tuple[_Stage, ...] = field(repr=False)
    _ends: tuple[int, ...] = field(repr=False)
    _sequences: tuple[int, ...] = field(repr=False)
    _tokens: tuple[int, ...] = field(repr=False)

    @classmethod
    def of(cls, config: RunConfig) -> Curriculum:
        """The curriculum of a resolved configuration."""
        phases = tuple(_placed(config.phases or (_whole(config),)))
        stages = tuple(stage for phase in phases for stage in _stages(phase, config))
        pairs = zip(_begins(stages), stages, strict=True)
        lengths = [stage.ends - begins for begins, stage in pairs]
        sequences = [n * stage.sequences for n, stage in zip(lengths, stages, strict=True)]
        tokens = [n * stage.shape.seq_len for n, stage in zip(sequences, stages, strict=True)]
        return cls(
            config,
            phases,
            bool(config.phases),
            stages,
            tuple(stage.ends for stage in stages),
            (0, *accumulate(sequences)),
            (0, *accumulate(tokens)),
        )

    def phase_at(self, step: int) -> Phase:
        """The phase of a step; the last one behind the end."""
        at = bisect_left([phase.ends for phase in self.phases], step)
        return self.phases[min(at, len(self.phases) - 1)]

    def border_at(self, step: int) -> Phase | None:
        """The named phase whose last step this is."""
        phase = self.phase_at(step)
        return phase if self.has_phases and step == phase.ends else None

    @property
    def borders(self) -> frozenset[int]:
        """The last steps of all phases that have a name."""
        return frozenset(phase.ends for phase in self.phases if self.has_phases)

    def factor(self, step: int) -> float:
        """The learning rate of a step as a share of `optimizer.lr`."""
        phase = self.phase_at(step)
        return phase.config.lr_scale * self._planned_factor(phase, step)

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        return self.config.optimizer.lr * self.factor(step)

    def weights(self, step: int) -> tuple[float, ...]:
        """The weights of the sources, in the configuration's order."""
        mix, sources = self.phase_at(step).config.sources, self.config.data.sources
        if mix is None:
            return tuple(source.weight for source in sources)
        return tuple(mix.get(source.name, 0.0) for source in sources)

    def shape(self, step: int) -> Shape:
        """How a rank takes a step."""
        return self._stage_at(step).shape

    @property
    def shapes(self) -> frozenset[Shape]:
        """The shapes that steps have."""
        return frozenset(stage.shape for stage in self._stages)

    @property
    def is_uniform(self) -> bool:
        """Whether all steps have one shape."""
        return len(self.shapes) == 1

    def tokens(self, step: int) -> int:
        """The tokens of a step over all ranks, where every sequence is full."""
        stage = self._stage_at(step)
        return stage.sequences * stage.shape.seq_len

    def tokens_before(self, steps_done: int) -> int:
        """The tokens of the first steps over all ranks."""
        return self._total(steps_done, self._tokens, tokens=True)

    def sequences_before(self, steps_done: int) -> int:
        """The sequences of the first steps over all ranks."""
        return self._total(steps_done, self._sequences, tokens=False)

    def steps_before(self, sequence: int) -> int:
        """How many steps are whole before the `sequence`-th one (from 0) of the run is drawn."""
        at = min(bisect_right(self._sequences, sequence) - 1, len(self._stages) - 1)
        begins = self._ends[at - 1] if at else 0
        return begins + (sequence - self._sequences[at]) // self._stages[at].sequences

    def _total(self, steps_done: int, before: Sequence[int], *, tokens: bool) -> int:
        at = min(bisect_left(self._ends, steps_done), len(self._stages) - 1)
        stage, begins = self._stages[at], self._ends[at - 1] if at else 0
        each = stage.sequences * (stage.shape.seq_len if tokens else 1)
        return before[at] + (steps_done - begins) * each

    def _stage_at(self, step: int) -> _Stage:
        return self._stages[min(bisect_left(self._ends, step), len(self._stages) - 1)]

    def _planned_factor(self, phase: Phase, step: int) -> float:
        rate = phase.config.lr
        if rate is None:
            return self.config.schedule.factor(step, self.config.steps)
        return _own_factor(rate, step - phase.begins, phase.config.steps, self._ended_at(phase))

    def _ended_at(self, phase: Phase) -> float:
        """Where the rate stood when the phase began; 0 at the run's start."""
        if phase.begins == 0:
            return 0.0
        return self._planned_factor(self.phase_at(phase.begins), phase.begins)


def _own_factor(rate: PhaseRate, step: int, steps: int, before: float) -> float:
    """Of a phase's step, counted from 1; its last step has `rate.end`."""
    start = before if rate.start is None else rate.start
    if step <= rate.warmup_steps:
        return before + (start - before) * step / rate.warmup_steps
    progress = min(1.0, (step - rate.warmup_steps) / max(1, steps - rate.warmup_steps))
    return rate.end + (start - rate.end) * SCHEDULES[rate.kind](progress)


def _placed(configs: Sequence[PhaseConfig]) -> Iterator[Phase]:
    begins = 0
    for config in configs:
        yield Phase(begins, begins + config.steps, config)
        begins += config.steps


def _whole(config: RunConfig) -> PhaseConfig:
    batch = config.batch
    sequences = batch.micro_batch * batch.accumulation * config.compute.processes
    return PhaseConfig("", max(1, config.steps), sequences, config.data.seq_len)


def _begins(stages: Sequence[_Stage]) -> Iterator[int]:
    yield 0
    yield from (stage.ends for stage in stages[:-1])


def _stages(phase: Phase, config: RunConfig) -> Iterator[_Stage]:
    """The stages of the ramp that reach into the phase, and what is left of it."""
    ramp = config.batch.ramp
    begins = phase.begins
    for stage in range(ramp.stages if ramp else 0):
        assert ramp is not None
        ends = min(phase.ends, ramp.steps * (stage + 1) // ramp.stages)
        if ends > begins:
            yield _Stage(ends, _shape(phase.config, config, ramp.share(stage)), _processes(config))
            begins = ends
    if begins < phase.ends:
        yield _Stage(phase.ends, _shape(phase.config, config, 1.0), _processes(config))


def _processes(config: RunConfig) -> int:
    return config.compute.processes


def _shape(phase: PhaseConfig, config: RunConfig, share: float) -> Shape:
    """As many sequences at once as fit where the run's micro-batch does, in equal passes."""
    batch, longest = config.batch, config.data.seq_len
    of_rank = max(1, round(phase.sequences * share) // _processes(config))
    if phase.seq_len == longest and of_rank == batch.micro_batch * batch.accumulation:
        return Shape(batch.micro_batch, batch.accumulation, longest)
    fitting = max(1, batch.micro_batch * longest // max(1, phase.seq_len))
    micro_batch = max(n for n in range(1, min(fitting, of_rank) + 1) if of_rank % n == 0)
    return Shape(micro_batch, of_rank // micro_batch, phase.seq_len)
