"""One instance of each detector for a placement, and the operations on all of them."""

from __future__ import annotations

from dataclasses import field

from trainer_runtime.core.diagnosis.detectors.checkpoints import Checkpoints
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.disk import Disk
from trainer_runtime.core.diagnosis.detectors.divergence import Divergence
from trainer_runtime.core.diagnosis.detectors.early_divergence import EarlyDivergence
from trainer_runtime.core.diagnosis.detectors.gpu import Gpu
from trainer_runtime.core.diagnosis.detectors.gradient import Gradient
from trainer_runtime.core.diagnosis.detectors.kl import KlBlowup
from trainer_runtime.core.diagnosis.detectors.margins import Margins
from trainer_runtime.core.diagnosis.detectors.memory import Memory
from trainer_runtime.core.diagnosis.detectors.missing_loss import MissingLoss
from trainer_runtime.core.diagnosis.detectors.nonfinite import NonFinite
from trainer_runtime.core.diagnosis.detectors.not_learning import NotLearning
from trainer_runtime.core.diagnosis.detectors.overfitting import Overfitting
from trainer_runtime.core.diagnosis.detectors.overoptimization import OverOptimization
from trainer_runtime.core.diagnosis.detectors.pace import Pace
from trainer_runtime.core.diagnosis.detectors.plateau import Plateau
from trainer_runtime.core.diagnosis.detectors.resumed import Resumed
from trainer_runtime.core.diagnosis.detectors.rewards import Rewards
from trainer_runtime.core.diagnosis.detectors.slow_rank import SlowRank
from trainer_runtime.core.diagnosis.detectors.spike import Spike
from trainer_runtime.core.diagnosis.detectors.stall import Stall
from trainer_runtime.core.diagnosis.detectors.throughput import Throughput
from trainer_runtime.core.records import dataclass


@dataclass(slots=True)
class DetectorSet:
    """A detector of each kind, with its state."""

    pace: Pace = field(default_factory=Pace)
    nonfinite: NonFinite = field(default_factory=NonFinite)
    spike: Spike = field(default_factory=Spike)
    gradient: Gradient = field(default_factory=Gradient)
    divergence: Divergence = field(default_factory=Divergence)
    early_divergence: EarlyDivergence = field(default_factory=EarlyDivergence)
    not_learning: NotLearning = field(default_factory=NotLearning)
    missing_loss: MissingLoss = field(default_factory=MissingLoss)
    plateau: Plateau = field(default_factory=Plateau)
    overfitting: Overfitting = field(default_factory=Overfitting)
    resumed: Resumed = field(default_factory=Resumed)
    margins: Margins = field(default_factory=Margins)
    over_optimization: OverOptimization = field(default_factory=OverOptimization)
    kl: KlBlowup = field(default_factory=KlBlowup)
    rewards: Rewards = field(default_factory=Rewards)
    throughput: Throughput = field(default_factory=Throughput)
    slow_rank: SlowRank = field(default_factory=SlowRank)
    stall: Stall = field(default_factory=Stall)
    gpu: Gpu = field(default_factory=Gpu)
    host_memory: Memory = field(default_factory=lambda: Memory("host_mem_gib"))
    gpu_memory: Memory = field(default_factory=lambda: Memory("gpu_mem_gib"))
    disk: Disk = field(default_factory=Disk)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)

    @property
    def memories(self) -> tuple[Memory, Memory]:
        return self.host_memory, self.gpu_memory

    def begin(self, context: DetectorContext, attempt: int, step: int) -> None:
        """Attempt `attempt` starts from `step`; 0 means from scratch."""
        self._note_level(context)
        context.begin(attempt, step)
        self._restart(step)
        self.disk.restart()  # downloads during preparation don't count towards the trend
        self.stall.start()

    def rewind(self, context: DetectorContext, step: int) -> None:
        """Steps of the same attempt went back to `step`, as in one log that contains a resume."""
        self._note_level(context)
        for code in _OF_THE_LOSS:
            context.ledger.close(code, context.step)
        context.begin(context.ledger.attempt, step)
        self._restart(step)

    def new_phase(self, context: DetectorContext) -> None:
        """The data mixture changes, so earlier losses are no longer comparable."""
        self.spike.restart()
        self.divergence.restart()
        self.early_divergence.restart()
        self.plateau.restart()
        self.overfitting.restart()
        self._restart_preferences()
        for code in ("divergence", "plateau", "overfitting", "loss_spike", *_OF_PREFERENCES):
            context.ledger.close(code, context.step)

    def _note_level(self, context: DetectorContext) -> None:
        self.resumed.note(context, context.step, self.spike.outlier.window)

    def _restart(self, step: int) -> None:
        self.resumed.resume(step)
        self.nonfinite = NonFinite()
        self.spike.restart()
        self.gradient.restart()
        self.divergence.restart()
        self.early_divergence.restart()
        self.not_learning.restart()
        self.missing_loss.restart()
        self.plateau.restart()
        self.overfitting.restart()
        self._restart_preferences(step)
        self.throughput.restart()
        self.slow_rank.restart()
        self.pace.restart()
        self.stall.restart()
        self.gpu.restart()
        self.host_memory.restart()
        self.gpu_memory.restart()
        self.checkpoints.restart(step)

    def _restart_preferences(self, step: int = 0) -> None:
        self.margins.restart(step)
        self.over_optimization.restart()
        self.kl.restart()
        self.rewards.restart()


_OF_PREFERENCES = (
    "margin_collapse",
    "over_optimization",
    "kl_blowup",
    "kl_negative",
    "reward_collapse",
)
_OF_THE_LOSS = (
    *_OF_PREFERENCES,
    "nan_loss",
    "nan_grad",
    "nan_eval",
    "nan_metric",
    "reward_std_nan",
    "not_learning",
    "loss_missing",
    "loss_spike",
    "grad_norm_rising",
    "divergence",
    "plateau",
    "overfitting",
    "throughput_drop",
    "slow_rank",
    "checkpoint_overdue",
)
