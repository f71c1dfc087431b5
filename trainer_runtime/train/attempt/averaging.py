"""Optimizers that evaluate other weights than they train: schedule-free AdamW (Defazio et al. 2024,
arXiv:2405.15682)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

# Of the state: the weights that are trained, while the model has those that are evaluated.
_TRAINED = "trained"


def with_exact_averages(schedule_free: type[Any]) -> type[Any]:
    """The class, going back to the very weights that it left.

    pytorch-optimizer computes either weights from the other, and rounds: evaluating would change
    the training. A copy takes the room that gradients leave free meanwhile. A state that is saved
    meanwhile holds the copy: the checkpoint's model is then the evaluated one, and the training
    continues from the trained one.
    """

    class ScheduleFree(schedule_free):  # type: ignore[misc]
        @torch.no_grad()
        def eval(self) -> None:
            for group in self.param_groups:
                weight = 1 - 1 / group["betas"][0]
                for parameter in group["params"] if group["train_mode"] else ():
                    state = self.state.get(parameter, {})
                    if "z" in state:
                        state[_TRAINED] = parameter.clone()
                        parameter.lerp_(state["z"], weight)
                group["train_mode"] = False

        @torch.no_grad()
        def train(self) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    trained = self.state.get(parameter, {}).pop(_TRAINED, None)
                    if trained is not None:
                        parameter.copy_(trained)
                group["train_mode"] = True

    return ScheduleFree


@contextlib.contextmanager
def evaluated_weights(optimizer: Any) -> Iterator[None]:
    """For the time in which the model has the weights that are evaluated and kept."""
    use_evaluated_weights(optimizer)
    try:
        yield
    finally:
        use_trained_weights(optimizer)


def use_evaluated_weights(optimizer: Any) -> None:
    """Until `use_trained_weights`; nothing where they are the same."""
    getattr(optimizer, "eval", lambda: None)()


def use_trained_weights(optimizer: Any) -> None:
    getattr(optimizer, "train", lambda: None)()
