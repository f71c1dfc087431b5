"""How a run is carried through: hardware, checkpoints, recovery, limits, the attempt."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trainer_runtime.core.decoding import Fields, JsonRecord

# Another machine may have written any number.
_MOST_NODES = 65_536


def _recomputes(fields: Fields) -> bool:
    return bool(fields.values.get("activation_checkpointing"))


@dataclass(frozen=True, slots=True)
class ComputeConfig(JsonRecord):
    """`processes` is the number of ranks, over all `nodes` alike, `strategy` how they share the
    model. `taking_part`: the numbers of these nodes among the run's hosts; `min_nodes`: with how
    many it may continue, None: with all. `launcher` docker: in a container of `image`, with
    `shm_size` of shared memory."""

    device: str = "cpu"
    gpus: int | None = None
    threads: int | None = None
    compile: bool = False
    deterministic: bool = False
    fp8_lm_head: bool = False
    loss: str = "whole"
    strategy: str = "single"
    processes: int = 1
    nodes: int = 1
    activation_checkpointing: bool = field(default=False, metadata={"read": _recomputes})
    gpu_memory_gib: float | None = None
    launcher: str = "process"
    image: str | None = None
    taking_part: tuple[int, ...] = (0,)
    min_nodes: int | None = None
    shm_size: str | None = None

    @classmethod
    def of(cls, fields: Fields) -> ComputeConfig:
        config = super(ComputeConfig, cls).of(fields)
        nodes = config.nodes or 1
        taking_part = fields.integers("taking_part") or tuple(range(min(nodes, _MOST_NODES)))
        processes = config.processes or 1
        return replace(config, nodes=nodes, processes=processes, taking_part=taking_part)

    @property
    def is_whole_on_each_rank(self) -> bool:
        """Whether each rank has all parameters, as the model names them."""
        return self.strategy in ("single", "ddp")

    @property
    def is_contained(self) -> bool:
        return self.launcher == "docker"


def _every(fields: Fields) -> int | str:
    every = fields.values.get("every")
    return every if isinstance(every, str) else fields.integer("every", 0)


@dataclass(frozen=True, slots=True)
class CheckpointConfig(JsonRecord):
    """`every`: a number of steps, or a duration such as 90s, 10m, 1h.

    `metric`: what the best one is chosen by. `mirror`: where second copies go. `ema`: the decay of
    averaged weights, None: none are kept.
    """

    every: int | str = field(default=0, metadata={"read": _every})
    every_is_auto: bool = False
    keep_latest: int = 3
    keep_best: int = 1
    keep_every_steps: int | None = None
    metric: str = "val_loss"
    mirror: str | None = None
    ema: float | None = None

    @property
    def is_mirrored_to_store(self) -> bool:
        """Whether copies go to an object store."""
        return "://" in (self.mirror or "")


@dataclass(frozen=True, slots=True)
class RecoveryConfig(JsonRecord):
    """What follows from a failure, by its kind; None: nothing special.

    `decide_within`: how long somebody may choose otherwise, None: not at all. `await_nodes`: how
    long a lost node is waited for.
    """

    max_restarts: int = 0
    on_crash: str | None = None
    on_nan: str | None = None
    on_spike: str | None = None
    on_oom: str | None = None
    on_stall: str | None = None
    decide_within: str | None = None
    await_nodes: str | None = None

    def rule(self, name: str) -> str | None:
        """The value of `on_…` by its name."""
        rules = {
            "on_crash": self.on_crash,
            "on_nan": self.on_nan,
            "on_spike": self.on_spike,
            "on_oom": self.on_oom,
            "on_stall": self.on_stall,
        }
        return rules[name]


@dataclass(frozen=True, slots=True)
class LimitsConfig(JsonRecord):
    max_runtime_s: float | None = None
    budget_usd: float | None = None


@dataclass(frozen=True, slots=True)
class ResumeConfig(JsonRecord):
    """Where to start. `candidates` None: every checkpoint there is, newest first."""

    mode: str = "latest"
    candidates: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class AttemptConfig:
    """`is_recorded`: the supervisor has written it; the run's own configuration has none.
    `why`: what it was started for, such as `resume` where somebody has."""

    number: int = 1
    resume: ResumeConfig = ResumeConfig()
    is_recorded: bool = False
    has_resume: bool = False
    why: str = ""

    @classmethod
    def of(cls, fields: Fields | None) -> AttemptConfig:
        if fields is None:
            return cls()
        resume = fields.part("resume", ResumeConfig.of)
        return cls(
            number=fields.integer("number", 1),
            resume=resume or ResumeConfig(),
            is_recorded=True,
            has_resume=resume is not None,
            why=fields.find_text("reason") or "",
        )

    @property
    def is_by_user(self) -> bool:
        """Whether somebody has resumed the run, rather than its supervisor."""
        return self.why == "resume"


@dataclass(frozen=True, slots=True)
class RehearsalConfig(JsonRecord):
    """Of a run that only tries out another one: over its first `steps` steps."""

    steps: int
