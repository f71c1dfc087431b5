"""How a run is carried through: hardware, checkpoints, recovery, limits, the attempt."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.decoding import Fields

# Another machine may have written any number.
_MOST_NODES = 65_536


@dataclass(frozen=True, slots=True)
class ComputeConfig:
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
    activation_checkpointing: bool = False
    gpu_memory_gib: float | None = None
    launcher: str = "process"
    image: str | None = None
    taking_part: tuple[int, ...] = (0,)
    min_nodes: int | None = None
    shm_size: str | None = None

    @classmethod
    def of(cls, fields: Fields) -> ComputeConfig:
        nodes = fields.integer("nodes", 1) or 1
        recompute = fields.values.get("activation_checkpointing")
        return cls(
            device=fields.text("device", "cpu"),
            gpus=fields.find_integer("gpus"),
            threads=fields.find_integer("threads"),
            compile=fields.flag("compile", False),
            deterministic=fields.flag("deterministic", False),
            fp8_lm_head=fields.flag("fp8_lm_head", False),
            loss=fields.text("loss", "whole"),
            strategy=fields.text("strategy", "single"),
            processes=fields.integer("processes", 1) or 1,
            nodes=nodes,
            taking_part=fields.integers("taking_part") or tuple(range(min(nodes, _MOST_NODES))),
            min_nodes=fields.find_integer("min_nodes"),
            activation_checkpointing=bool(recompute),
            gpu_memory_gib=fields.find_number("gpu_memory_gib"),
            launcher=fields.text("launcher", "process"),
            image=fields.find_text("image"),
            shm_size=fields.find_text("shm_size"),
        )

    @property
    def is_contained(self) -> bool:
        return self.launcher == "docker"


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """`every`: a number of steps, or a duration such as 90s, 10m, 1h.

    `metric`: what the best one is chosen by. `mirror`: where second copies go.
    """

    every: int | str
    every_is_auto: bool = False
    keep_latest: int = 3
    keep_best: int = 1
    keep_every_steps: int | None = None
    metric: str = "val_loss"
    mirror: str | None = None

    @classmethod
    def of(cls, fields: Fields) -> CheckpointConfig:
        every = fields.values.get("every")
        return cls(
            every=every if isinstance(every, str) else fields.integer("every", 0),
            every_is_auto=fields.flag("every_is_auto", False),
            keep_latest=fields.integer("keep_latest", 3),
            keep_best=fields.integer("keep_best", 1),
            keep_every_steps=fields.find_integer("keep_every_steps"),
            metric=fields.text("metric", "val_loss"),
            mirror=fields.find_text("mirror"),
        )


@dataclass(frozen=True, slots=True)
class RecoveryConfig:
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

    @classmethod
    def of(cls, fields: Fields) -> RecoveryConfig:
        return cls(
            max_restarts=fields.integer("max_restarts", 0),
            on_crash=fields.find_text("on_crash"),
            on_nan=fields.find_text("on_nan"),
            on_spike=fields.find_text("on_spike"),
            on_oom=fields.find_text("on_oom"),
            on_stall=fields.find_text("on_stall"),
            decide_within=fields.find_text("decide_within"),
            await_nodes=fields.find_text("await_nodes"),
        )

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
class LimitsConfig:
    max_runtime_s: float | None = None
    budget_usd: float | None = None

    @classmethod
    def of(cls, fields: Fields) -> LimitsConfig:
        return cls(fields.find_number("max_runtime_s"), fields.find_number("budget_usd"))


@dataclass(frozen=True, slots=True)
class ResumeConfig:
    """Where to start. `candidates` None: every checkpoint there is, newest first."""

    mode: str = "latest"
    candidates: tuple[int, ...] | None = None

    @classmethod
    def of(cls, fields: Fields) -> ResumeConfig:
        has_candidates = fields.values.get("candidates") is not None
        return cls(
            mode=fields.text("mode", "latest"),
            candidates=fields.integers("candidates") if has_candidates else None,
        )


@dataclass(frozen=True, slots=True)
class AttemptConfig:
    """`is_recorded`: the supervisor has written it; the run's own configuration has none."""

    number: int = 1
    resume: ResumeConfig = ResumeConfig()
    is_recorded: bool = False
    has_resume: bool = False

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
        )
