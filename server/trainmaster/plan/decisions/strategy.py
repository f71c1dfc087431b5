"""How several processes share a training, and whether activations are recomputed.

The first that fits of: the whole model in each process (DDP, 20 bytes a parameter), optimizer state
and gradients shared (ZeRO-2), weights shared too (ZeRO-3, FSDP), and then the same again with
recomputed activations, which costs a third more computing. Each costs more communication or
computing than the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.memory import Memory, Sharing
from trainmaster.plan.decisions.target import Target
from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

# Share of the usable memory that a plan for several processes may fill: gathering and buckets come
# in bursts that the formulas don't count.
_FIELD = "compute.strategy"
_FILLED = 0.9
_SOURCE = "Rajbhandari et al. 2020 (ZeRO), section 5"
_REASONS = {
    "single": "One process on one device.",
    "ddp": "Each process has room for the whole model, which needs the least communication.",
    "zero2": "The whole state does not fit into each process: gradients and optimizer state are "
    "shared.",
    "zero3": "Weights are shared too: less does not fit.",
    "fsdp": "Weights, gradients and optimizer state are shared: the whole does not fit into each "
    "process.",
}

# Strategies that shard the weights too.
_SHARDED = ("zero3", "zero3_offload", "fsdp")

Taken = Callable[[Sharing], Memory]


def room_gib(target: Target) -> float:
    """What one process may take of its device's memory."""
    return target.memory_gib if target.processes == 1 else target.memory_gib * _FILLED


def can_offload(spec: TrainingSpec, target: Target) -> bool:
    """Whether state could be held in the hosts' memory, which `auto` never chooses."""
    is_quantized = spec.adapter is not None and spec.adapter.quantize is not None
    has_zero = "zero3" in framework_of(spec).strategies
    return has_zero and target.device == "cuda" and not is_quantized


def choose_sharing(spec: TrainingSpec, target: Target, taken: Taken, ledger: Ledger) -> Sharing:
    """The first that fits, or the last where none does; `taken` estimates the memory of each.

    Raises:
        PlanError: INVALID_VALUE, the strategy is for several processes.
    """
    _refuse_what_cannot_be(spec, target)
    chosen = Sharing("single", target.processes)
    for chosen in _candidates(spec, target):
        if taken(chosen).total_gib <= room_gib(target):
            break
    if spec.compute.strategy == "auto":
        source = _SOURCE if target.processes > 1 else None
        ledger.decide("compute.strategy", chosen.strategy, _REASONS[chosen.strategy], source)
    if spec.compute.activation_checkpointing == "auto" and framework_of(spec).can_recompute:
        reason = (
            "Kept, they do not fit into memory." if chosen.recompute else "There is room for them."
        )
        ledger.decide("compute.activation_checkpointing", chosen.recompute, reason)
    return chosen


def _candidates(spec: TrainingSpec, target: Target) -> Iterator[Sharing]:
    asked = spec.compute.activation_checkpointing
    choices = (False, True) if asked == "auto" else (asked,)
    for recompute in choices if framework_of(spec).can_recompute else (False,):
        for strategy in _strategies(spec, target):
            yield Sharing(strategy, target.processes, recompute)


def _strategies(spec: TrainingSpec, target: Target) -> tuple[str, ...]:
    if spec.compute.strategy != "auto":
        return (spec.compute.strategy,)
    if target.processes == 1:
        return ("single",)
    if target.device == "cpu":
        # Its memory is one for all of them, and LitGPT's FSDP and DeepSpeed's bf16 want GPUs.
        return ("ddp",)
    framework = framework_of(spec)
    strategies = framework.strategies if spec.adapter is None else framework.adapter_strategies
    record, is_agc = OPTIMIZERS[spec.optimizer.name], spec.optimizer.clip == "agc"
    parted = () if is_agc else record.parted
    strategies = tuple(name for name in strategies if name in ("ddp", *parted))
    if spec.adapter is not None and spec.adapter.quantize:  # whose weights can't be shared
        return tuple(strategy for strategy in strategies if strategy not in _SHARDED)
    return strategies


def _refuse_what_cannot_be(spec: TrainingSpec, target: Target) -> None:
    strategy = spec.compute.strategy
    if strategy == "single" and target.processes > 1:
        fix = "Set compute.strategy to auto, or to ddp."
        raise _wrong(f"is single, but {target.processes} processes take part.", fix)
    if strategy == "ddp" and target.processes == 1:
        fix = "Set it to auto, or compute.gpus (on a CPU compute.processes) to how many take part."
        raise _wrong("is ddp, which takes several processes, but there is one.", fix)
    if strategy == "zero3_offload" and target.device == "cpu":
        fix = "Set it to zero3, or to auto."
        raise _wrong("is zero3_offload, but on a CPU memory to offload to is missing.", fix)
    if strategy == "fsdp" and target.device == "cpu":
        fix = "Set it to ddp, or to auto; hf and trl have zero2 and zero3 on CPUs too."
        raise _wrong("is fsdp, which Lightning and Accelerate have for GPUs alone.", fix)
    if spec.adapter is not None and spec.adapter.quantize and strategy in _SHARDED:
        fix = "Set it to auto, or adapter.quantize to null."
        raise _wrong(f"is {strategy}, which can't share a base in 4 bits.", fix)


def _wrong(what: str, fix: str) -> PlanError:
    return PlanError("INVALID_VALUE", f"`compute.strategy` {what}", fix, field=_FIELD)
