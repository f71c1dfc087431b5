"""Whose checkpoints another number of ranks can resume, and under which strategies. Pure."""

from __future__ import annotations

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import framework_of

# By the layout in which a checkpoint has the optimizer's state.
_ALIKE = (("single", "ddp"), ("fsdp",), ("zero1", "zero2"), ("zero3", "zero3_offload"))
_GATHERED = ("single", "ddp", "fsdp")
_REPLICATED = _ALIKE[0]
_ZERO = ("zero1", "zero2", "zero3", "zero3_offload")
# DeepSpeed converts what it has of Adam, and no other optimizer's state.
_CONVERTED = "adamw"


def strategies_alike(framework: str, strategy: str) -> tuple[str, ...]:
    """The strategies that can resume a checkpoint of this one, itself with them."""
    if framework_of(framework).gathers_whole_state:
        return _GATHERED
    return next((layout for layout in _ALIKE if strategy in layout), (strategy,))


def why_ranks_are_fixed(strategy: str, optimizer: str, *, is_quantized: bool) -> str | None:
    """Why no other number of ranks can resume a training's checkpoints; None where one can."""
    if strategy not in _ZERO or (optimizer == _CONVERTED and not is_quantized):
        return None
    what = "a model in 4 bits" if is_quantized else optimizer
    return f"can't change for {what} under {strategy}, which DeepSpeed can't convert"


def why_ranks_of(config: RunConfig) -> str | None:
    """The same of a run that a framework trains."""
    is_quantized = config.adapter is not None and config.adapter.quantize is not None
    strategy, optimizer = config.compute.strategy, config.optimizer.name
    return why_ranks_are_fixed(strategy, optimizer, is_quantized=is_quantized)


def strategy_on(strategy: str, ranks: int) -> str:
    """The strategy by which so many ranks continue a training of this one."""
    if strategy not in _REPLICATED:
        return strategy
    return "ddp" if ranks > 1 else "single"
