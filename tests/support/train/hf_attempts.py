"""Attempts with HF Trainer in this process, and what disturbs them."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from support.host.tiny_training import RunFolder
from support.plan.rendered import load_script

from trainer_runtime.train.attempt.exit_codes import ending
from trainer_runtime.train.loop.framework_run import FrameworkRun
from trainer_runtime.train.loop.range_test import ran_whole
from trainer_runtime.train.loop.signals import StopSignal

Disturbance = tuple[int, Callable[[], None]]


class CrashError(Exception):
    """What ends an attempt here as a crash would."""


def crash() -> None:
    raise CrashError


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class DisturbedRun(FrameworkRun):
    """An attempt to which something happens when a step has been recorded."""

    disturbance: Disturbance | None = None

    def end_step(self, step: int, values: Any) -> None:
        super().end_step(step, values)
        if self.disturbance is not None and step == self.disturbance[0]:
            self.disturbance[1]()


class Attempts:
    """Runs attempts in this process, each as `framework_run.run` does; keeps what they print."""

    def __init__(self) -> None:
        self.printed = self.errors = ""

    def __call__(
        self, run: RunFolder, config: str = "config.json", disturbance: Disturbance | None = None
    ) -> int:
        """The exit code of one attempt in a run's folder."""
        script, stop = load_script(run.folder), StopSignal()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        stop.install()
        output, errors = io.StringIO(), io.StringIO()

        def whole() -> None:
            attempt = DisturbedRun(Path(config), stop)
            attempt.disturbance = disturbance
            try:
                if ran_whole(attempt.config, lambda: script.train(attempt)):
                    attempt.check_end()
            finally:
                attempt.close()

        try:
            with (
                contextlib.chdir(run.folder),
                contextlib.redirect_stdout(output),
                contextlib.redirect_stderr(errors),
            ):
                return ending(whole)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self.printed, self.errors = output.getvalue(), errors.getvalue()

    def first_batches(self, count: int) -> list[dict[str, torch.Tensor]]:
        """What the trainer's loader gives first to an attempt in the working folder."""
        script = load_script(Path())
        attempt = FrameworkRun(Path("config.json"), StopSignal())
        attempt.choose_checkpoint()
        tokenizer = script.AutoTokenizer.from_pretrained(script.tokenizer_source(attempt))
        model = script.make_model(attempt, tokenizer)
        trainer = script.InOrderTrainer(
            model=model,
            args=script.read_arguments(attempt, script.TrainingArguments),
            data_collator=script.collator_of(attempt, model),
            train_dataset=script.training_sequences(attempt, 257, None),
        )
        batches = list(itertools.islice(trainer.get_train_dataloader(), count))
        attempt.close()
        return batches
