"""Steps of several sizes for Trainer, which by itself gives all of them one batch and one length.

A batch of the loader is then all that a rank takes in one step, as a list of micro-batches: Trainer
sees a single one, and each is brought through it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer

from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.loop.framework_run import FrameworkRun

MicroBatches = list[dict[str, Tensor]]


class StepTrainer(Trainer):
    """Trains by the curriculum of `attempt`, where its steps differ in size; else as Trainer."""

    attempt: FrameworkRun | None = None
    _random_state: str | None = None

    def follow(self, attempt: FrameworkRun) -> None:
        """Takes up the run's curriculum; called before `train`.

        Raises:
            ConfigError: DeepSpeed counts micro-batches by itself.
        """
        self.attempt = attempt
        if self._own_steps is not None and self.is_deepspeed_enabled:
            raise ConfigError(
                f"compute.strategy {attempt.config.compute.strategy} takes steps of one size: give "
                "all phases one batch and seq_len and no batch.ramp, or take ddp or fsdp"
            )

    @property
    def _own_steps(self) -> FrameworkRun | None:
        """The attempt, where its steps differ in size."""
        attempt = self.attempt
        return None if attempt is None or attempt.curriculum.is_uniform else attempt

    def get_train_dataloader(self) -> DataLoader[Any]:
        attempt = self._own_steps
        if attempt is None:
            return super().get_train_dataloader()
        rows: Any = self.train_dataset
        if hasattr(self, "_remove_unused_columns") and hasattr(rows, "column_names"):
            rows = self._remove_unused_columns(rows, description="training")
        # Not by accelerate: it would deal whole steps out to the ranks.
        return DataLoader(
            rows,
            batch_sampler=StepSampler(attempt.curriculum, attempt.rank, attempt.world_size),
            collate_fn=_Collator(self.data_collator, attempt.curriculum),
            pin_memory=self.args.dataloader_pin_memory,
            num_workers=self.args.dataloader_num_workers,
        )

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: Any
    ) -> tuple[list[Any], Any]:
        if self._own_steps is None:
            batches = super().get_batch_samples(epoch_iterator, num_batches, device)
            self._restore_random_state()
            return batches
        pieces: MicroBatches = next(epoch_iterator)
        return [pieces], self._get_num_items_in_batch(pieces, device)

    def training_step(
        self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> Tensor:
        if self._own_steps is None:
            return super().training_step(model, inputs, num_items_in_batch)
        self.current_gradient_accumulation_steps = len(inputs)
        losses = []
        for index, piece in enumerate(inputs):
            is_last = index == len(inputs) - 1
            # Gradients are summed over the ranks once a step.
            with nullcontext() if is_last else self.accelerator.no_sync(model):
                losses.append(super().training_step(model, piece, num_items_in_batch))
        return sum(losses[1:], losses[0])

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        self._random_state = checkpoint if self.args.ignore_data_skip else None

    def _restore_random_state(self) -> None:
        """Loads a checkpoint's random numbers once more where a loader was begun with them: it has
        drawn a seed. Trainer does the same where the loader passes over earlier batches."""
        if self._random_state is not None:
            super()._load_rng_state(self._random_state)
            self._random_state = None

    def floating_point_ops(self, inputs: Any) -> int:
        pieces = inputs if isinstance(inputs, list) else [inputs]
        operations = super().floating_point_ops
        return sum(int(operations(piece)) for piece in pieces)


class StepSampler:
    """The items of one rank, a step at a time, in the order in which all ranks draw them."""

    def __init__(self, curriculum: Curriculum, rank: int, world_size: int) -> None:
        self._curriculum, self._rank, self._world_size = curriculum, rank, world_size

    def __len__(self) -> int:
        return self._curriculum.config.steps

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(1, len(self) + 1):
            shape = self._curriculum.shape(step)
            first = self._curriculum.sequences_before(step - 1)
            own = first + self._rank * shape.micro_batch
            stride = self._world_size * shape.micro_batch
            yield [
                own + piece * stride + place
                for piece in range(shape.accumulation)
                for place in range(shape.micro_batch)
            ]


class _Collator:
    """A step's items as micro-batches; their size follows from how many a step has."""

    def __init__(self, collate: Callable[[list[Any]], Any], curriculum: Curriculum) -> None:
        self._collate = collate
        self._sizes: dict[int, int] = {}
        for shape in curriculum.shapes:
            items = shape.micro_batch * shape.accumulation
            self._sizes[items] = min(shape.micro_batch, self._sizes.get(items, items))

    def __call__(self, items: list[Any]) -> MicroBatches:
        size = self._sizes[len(items)]
        return [self._collate(items[at : at + size]) for at in range(0, len(items), size)]
