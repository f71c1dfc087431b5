"""Tiny LitGPT runs for tests, trained by the real script in this process."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import runpy
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from support.host.run_configs import Config, changed
from support.host.tiny_training import REPOSITORY, RunFolder, prepared_config
from support.plan.rendered import SCRIPT, script_text

STEPS = 12
KEYS = ("loss", "grad_norm", "lr", "val_loss", "val_loss/main", "val_loss/docs")


def pretraining(folder: Path) -> Config:
    """A pretraining of a small Llama on two sources, three to one, prepared under `folder`."""
    docs = (REPOSITORY / "LICENSE").read_bytes() * 4  # never changes, as do losses with the text
    text = script_text("litgpt", command="pretrain").encode() * 4
    config = prepared_config(folder, "litgpt", text, docs=docs)
    config["data"]["sources"][0]["weight"] = 3.0
    config["model"] |= {"n_kv_head": 1, "style": "llama", "dropout": 0.0}
    return changed(
        config,
        {
            "schedule__warmup_steps": 3,
            "steps": STEPS,
            "eval__every_steps": 4,
            "checkpoint__every": 4,
        },
    )


class Run(RunFolder):
    """A run's folder, and its attempts at training in it."""

    def train(self, **attempt: Any) -> int:
        """The exit code of one attempt in this process; `attempt` goes into its own config."""
        return self.train_by(self.attempt_config(**attempt) if attempt else "config.json")

    def train_by(self, name: str) -> int:
        """The same by a configuration of this name."""
        with as_a_process_of_its_own(self.folder), _arguments(SCRIPT, name):
            try:
                runpy.run_path(SCRIPT, run_name="__main__")
            except SystemExit as end:
                return int(end.code or 0)
        raise AssertionError("a script ends with its exit code")

    @property
    def environment(self) -> Mapping[str, str]:
        """What an attempt in a process of its own needs."""
        return {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}

    def values_by_step(self, attempt: int | None = None) -> dict[tuple[str, int], tuple[Any, ...]]:
        """The values of every step and evaluation of one attempt."""
        return {
            (event["kind"], event["step"]): tuple(event["values"].get(key) for key in KEYS)
            for event in self.events_of(attempt)
            if event["kind"] in ("metric", "eval")
        }

    def events_of(self, attempt: int | None = None) -> list[dict[str, Any]]:
        return self.events("." if attempt is None else f"attempts/{attempt}")

    def model(self) -> dict[str, torch.Tensor]:
        """The final model's weights."""
        loaded: dict[str, torch.Tensor] = torch.load(self.folder / "final/lit_model.pth")
        return loaded


def assert_same_tensors(
    left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]
) -> None:
    assert left.keys() == right.keys()
    assert [name for name in left if not torch.equal(left[name], right[name])] == []


@contextlib.contextmanager
def as_a_process_of_its_own(folder: Path) -> Iterator[None]:
    """Puts back what an attempt sets for its whole process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        faulthandler.unregister(signal.SIGUSR2)
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.set_flush_denormal(False)
        gc.enable()


@contextlib.contextmanager
def _arguments(*arguments: str) -> Iterator[None]:
    given = sys.argv
    sys.argv = list(arguments)
    try:
        yield
    finally:
        sys.argv = given
