"""The configured optimizer in Hugging Face Trainer, and what a checkpoint may not set in it."""

from __future__ import annotations

from typing import Any

from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.train.attempt.averaging import use_evaluated_weights
from trainer_runtime.train.attempt.config import RunConfig
from trainer_runtime.train.attempt.optimizer import make_optimizer
from trainer_runtime.train.attempt.optimizer_state import name_state, settings_of


class TrainerOptimizer:
    """Makes a Trainer's optimizer, in place of Trainer's choice of its own."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._settings: list[dict[str, Any]] = []

    def give_to(self, trainer: Any) -> None:
        """Before training; Trainer asks for it once the model is on its device."""

        def create_optimizer(model: Any = None) -> Any:
            if trainer.optimizer is None:
                trained = trainer.model if model is None else model
                trainer.optimizer = make_optimizer(trained, self._config.optimizer)
                self._settings = settings_of(trainer.optimizer)
                if self._config.compute.is_whole_on_each_rank:
                    name_state(trainer.optimizer, trained)
            return trainer.optimizer

        trainer.create_optimizer = create_optimizer
        save_model = trainer.save_model

        def save(*arguments: Any, **options: Any) -> None:
            use_evaluated_weights(trainer.optimizer)
            save_model(*arguments, **options)

        trainer.save_model = save

    def take_present_settings(self, optimizer: Any, scheduler: Any, curriculum: Curriculum) -> None:
        """Sets the rates by our schedule, and decay and betas of the present configuration.

        Trainer has just restored those of the checkpoint, so a changed setting would never take
        effect; and of our schedules it implements only the cosine exactly.
        """
        scheduler = getattr(scheduler, "scheduler", scheduler)
        highest = self._config.optimizer.lr

        # A function of its own: of other callables the scheduler saves attributes, for each group.
        def factor(steps_done: int) -> float:
            return curriculum.factor(steps_done + 1)

        scheduler.lr_lambdas = [factor] * len(optimizer.param_groups)
        scheduler.base_lrs, scheduler._last_lr = [], []
        for group, settings in zip(optimizer.param_groups, self._settings, strict=True):
            group.update(settings)
            rate = highest * group.get("lr_scale", 1.0)
            scheduler.base_lrs.append(rate)
            scheduler._last_lr.append(rate * factor(scheduler.last_epoch))
            group["initial_lr"], group["lr"] = rate, scheduler._last_lr[-1]
