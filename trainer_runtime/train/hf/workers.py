"""Loader processes that leave signals to the trainer.

A scheduler may send SIGTERM to all processes of a job. PyTorch's workers would end by it, and with
them the training that is about to save.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any


def keep_workers(trainer: Any) -> None:
    """Has the workers of a trainer's loaders end with their loader alone; they also do where the
    trainer is killed."""
    trainer.get_train_dataloader = _ignoring_signals(trainer.get_train_dataloader)
    trainer.get_eval_dataloader = _ignoring_signals(trainer.get_eval_dataloader)


def _ignoring_signals(make: Callable[..., Any]) -> Callable[..., Any]:
    def loader(*arguments: Any, **options: Any) -> Any:
        made = make(*arguments, **options)
        own = getattr(made, "base_dataloader", made)  # of what accelerate has prepared
        begin = own.worker_init_fn

        def begin_worker(number: int) -> None:
            for stop in (signal.SIGTERM, signal.SIGINT):
                signal.signal(stop, signal.SIG_IGN)
            if begin is not None:
                begin(number)

        if own.num_workers:
            own.worker_init_fn = begin_worker
        return made

    return loader
