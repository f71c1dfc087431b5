"""The Fabric of a run: each of LitGPT's commands makes one and does everything through it.

Losses and gradients are therefore checked here, not in LitGPT's loops, before the weights change;
and saves and evaluations run when a loop asks for its next batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MethodType
from typing import Any

import lightning
import torch
from torch import Tensor, nn

from trainer_runtime.core.frameworks.litgpt import PRECISIONS
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.attempt.parameter_groups import dimensions_of
from trainer_runtime.train.litgpt.loop import Loop, shards


class RunFabric(lightning.Fabric):  # type: ignore[misc]  # its types are skipped
    """`lightning.Fabric` by the run's `compute` and `precision`, watched by its loop."""

    def __init__(
        self, loop: Loop, *, strategy: Any = "auto", precision: str | None = None, **options: Any
    ) -> None:
        """`strategy` and `precision` are what the command would take by itself.

        Raises:
            ConfigError: LitGPT has no such strategy.
        """
        config = loop.attempt.config
        super().__init__(
            **options,
            accelerator=config.compute.device,
            strategy=_strategy(config, strategy),
            # None: a quantized model's plugin decides.
            precision=None if options.get("plugins") else PRECISIONS[config.precision],
        )
        self._loop = loop
        if config.compute.device == "cpu":
            # LitGPT's command has set `high`, which is for GPUs.
            torch.set_float32_matmul_precision("highest")

    def setup(self, module: nn.Module, *optimizers: Any, **options: Any) -> Any:
        self._loop.model = super().setup(self._made_ready(module), *optimizers, **options)
        return self._loop.model

    def setup_module(self, module: nn.Module, **options: Any) -> Any:
        self._loop.model = super().setup_module(self._made_ready(module), **options)
        return self._loop.model

    def setup_optimizers(self, *optimizers: Any) -> Any:
        """The single optimizer, with hooks before and after its step."""
        optimizer = super().setup_optimizers(*optimizers)
        take_step, loop = optimizer.step, self._loop

        def step(self: Any) -> Any:
            loop.before_step()
            result = take_step()
            loop.after_step()
            return result

        optimizer.step = MethodType(step, optimizer)
        return optimizer

    def setup_dataloaders(self, *loaders: Any, **options: Any) -> Any:
        """The training loader comes first; the data module shares it out over the ranks."""
        options["use_distributed_sampler"] = False
        training, *others = [
            super(RunFabric, self).setup_dataloaders(x, **options) for x in loaders
        ]
        return [_HookedLoader(training, self._loop), *others]

    def backward(self, tensor: Tensor, *arguments: Any, **options: Any) -> None:
        """Sums up the loss of a step, which LitGPT has divided by the accumulation."""
        self._loop.add_loss(tensor.detach())
        super().backward(tensor, *arguments, **options)

    def clip_gradients(self, module: Any, optimizer: Any, **options: Any) -> Tensor | None:
        """Records the norm before clipping; the guard handles one that is not finite."""
        norm: Tensor | None = super().clip_gradients(
            module, optimizer, **options, error_if_nonfinite=False
        )
        self._loop.grad_norm = norm
        return norm

    def log_dict(self, metrics: Any, step: int | None = None) -> None:
        super().log_dict(*self._loop.counted(metrics, step))

    def _made_ready(self, module: nn.Module) -> Any:
        """LitGPT compiles when it pretrains and never else; here it is as configured."""
        config = self._loop.attempt.config
        plain = getattr(module, "_orig_mod", module)
        self._loop.dimensions = dimensions_of(plain)
        if _recomputes(config) and not shards(config):
            recompute_blocks(plain)
        return torch.compile(plain) if config.compute.compile else plain


class _HookedLoader:
    """A loader that runs `between_steps` before it gives the next batch."""

    def __init__(self, loader: Any, loop: Loop) -> None:
        self._loader, self._loop = loader, loop
        self.dataset = loader.dataset

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        while True:
            self._loop.between_steps()
            with self._loop.reading():
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch


def _strategy(config: RunConfig, strategy: Any) -> Any:
    from lightning.fabric.strategies import FSDPStrategy
    from litgpt.model import Block

    name = config.compute.strategy
    if name == "single":
        return "auto"
    if name == "ddp":
        return "ddp"
    if name != "fsdp" or config.adapter:
        of = "LoRA in LitGPT" if config.adapter else "LitGPT"
        raise ConfigError(f"compute.strategy {name} is not for {of}; use ddp")
    if not shards(config):
        return "auto"
    has_several_hosts = config.compute.nodes > 1
    if config.method == "sft" or not (_recomputes(config) or has_several_hosts):
        return strategy
    # As `litgpt pretrain` makes it, but for the recomputing, and for the ranks of other hosts, over
    # which its HYBRID_SHARD does not shard; `finetune_full` always recomputes, and always does.
    return FSDPStrategy(
        auto_wrap_policy={Block},
        activation_checkpointing_policy={Block} if _recomputes(config) else None,
        state_dict_type="full",
        sharding_strategy="FULL_SHARD" if has_several_hosts else "HYBRID_SHARD",
    )


def _recomputes(config: RunConfig) -> bool:
    return config.compute.activation_checkpointing


def recompute_blocks(model: nn.Module) -> None:
    """Has a model of LitGPT recompute the activations of each block."""
    from litgpt.model import Block
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing,
    )

    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
