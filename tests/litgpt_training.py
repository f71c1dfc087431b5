"""What the tests of LitGPT share: tiny runs, trained by the real script in this process."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import runpy
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer_runtime.box.prepare import prepare
from trainer_runtime.core import frameworks
from trainer_runtime.core.corpus import Source, fingerprint, list_files
from trainer_runtime.core.protocol import complete_lines, decode

REPOSITORY = Path(__file__).parents[1]
SCRIPT = REPOSITORY / "templates/litgpt/train.py"
SEQ_LEN = 32
STEPS = 12
Config = dict[str, Any]
Events = list[dict[str, Any]]
VALUES = ("loss", "grad_norm", "lr", "val_loss", "val_loss/code", "val_loss/docs")


def resolved(cache: Path, **changed: Any) -> Config:
    """A config.json of a tiny pretraining on text of two sources, on which a test may build."""
    return {
        "config_version": 1,
        "run_id": "tiny-abc234",
        "name": "tiny",
        "framework": "litgpt",
        "method": "pretrain",
        "method_args": {},
        "model": {
            "n_layer": 2,
            "n_head": 2,
            "n_kv_head": 1,
            "d_model": 32,
            "d_ff": 64,
            "vocab_size": 320,
            "style": "llama",
            "dropout": 0.0,
            "preset": None,
            "path": None,
            "hub": None,
            "revision": None,
        },
        "adapter": None,
        "data": {
            "sources": [
                {"name": "code", "path": "/data/code", "format": "text", "weight": 3.0},
                {"name": "docs", "path": "/data/docs", "format": "text", "weight": 1.0},
            ],
            "tokenizer": "byte",
            "seq_len": SEQ_LEN,
            "fingerprint": "0123456789abcdef",
            "cache_dir": str(cache),
            "skip": [],
            "form": "shards",
        },
        "batch": {"tokens": 8 * SEQ_LEN, "micro_batch": 4, "accumulation": 2},
        "optimizer": {
            "name": "adamw",
            "lr": 0.003,
            "weight_decay": 0.1,
            "grad_clip": 1.0,
            "betas": [0.9, 0.95],
        },
        "schedule": {"kind": "cosine", "warmup_steps": 3, "min_lr_ratio": 0.1},
        "steps": STEPS,
        "precision": "bf16",
        "seed": 1337,
        "eval": {"every_steps": 4, "batches": 2},
        "checkpoint": {"every": 4, "keep_latest": 3, "keep_best": 1, "metric": "val_loss"},
        "compute": {
            "device": "cpu",
            "threads": 1,
            "compile": False,
            "processes": 1,
            "strategy": "single",
            "activation_checkpointing": False,
        },
        "tracking": {},
        **changed,
    }


def with_text(config: Config, folder: Path) -> Config:
    """The config with its sources' text written and cut into shards."""
    texts = {"code": SCRIPT.read_text() * 4, "docs": (REPOSITORY / "CHANGELOG.md").read_text()}
    sources = []
    for name, text in texts.items():
        (folder / name).mkdir()
        (folder / name / "text.txt").write_text(text)
        sources.append(Source(name, str(folder / name), list_files(folder / name)))
    data = config["data"]
    data["sources"] = [{**given, "path": str(folder / given["name"])} for given in data["sources"]]
    data["fingerprint"] = fingerprint(sources, "byte", SEQ_LEN)
    prepare(config, lambda line: None)
    return config


@dataclass
class Run:
    """A run's folder, and its attempts at training in it."""

    folder: Path
    config: Config

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write(self.folder, self.config)

    def train(self, **attempt: Any) -> int:
        """The exit code of one attempt in this process; `attempt` goes into its own config."""
        with in_a_process_of_its_own(self.folder), _arguments("train.py", self._named(attempt)):
            try:
                runpy.run_path(str(SCRIPT), run_name="__main__")
            except SystemExit as end:
                return int(end.code or 0)
        raise AssertionError("a script ends with its exit code")

    def command(self, **attempt: Any) -> list[str]:
        """The same as arguments of an interpreter, in the run's folder with `environment`."""
        return [str(SCRIPT), self._named(attempt)]

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}

    def events(self, attempt: int | None = None) -> Events:
        folder = self.folder if attempt is None else self.folder / f"attempts/{attempt}"
        path = folder / "events.jsonl"
        lines, _ = complete_lines(path.read_bytes() if path.exists() else b"")
        return [decode(line) for line in lines]

    def told(self, attempt: int | None = None) -> dict[tuple[str, int], tuple[Any, ...]]:
        """What was told of every step and evaluation."""
        return {
            (event["kind"], event["step"]): tuple(event["values"].get(key) for key in VALUES)
            for event in self.events(attempt)
            if event["kind"] in ("metric", "eval")
        }

    def steps_stored(self) -> list[int]:
        return sorted(int(path.name[5:]) for path in self.folder.glob("checkpoints/step-*"))

    def weights(self) -> dict[str, torch.Tensor]:
        loaded: dict[str, torch.Tensor] = torch.load(self.folder / "final/lit_model.pth")
        return loaded

    def _named(self, attempt: Mapping[str, Any]) -> str:
        if not attempt:
            return "config.json"
        folder = self.folder / f"attempts/{attempt['number']}"
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder, {**self.config, "attempt": dict(attempt)})
        return f"attempts/{attempt['number']}/config.json"

    def _write(self, folder: Path, config: Config) -> None:
        for name, text in {
            **frameworks.files(config),
            "config.json": json.dumps(config),
        }.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)


@contextlib.contextmanager
def in_a_process_of_its_own(folder: Path) -> Iterator[None]:
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


def assert_same_tensors(
    left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]
) -> None:
    assert left.keys() == right.keys()
    assert [name for name in left if not torch.equal(left[name], right[name])] == []


@contextlib.contextmanager
def _arguments(*arguments: str) -> Iterator[None]:
    given = sys.argv
    sys.argv = list(arguments)
    try:
        yield
    finally:
        sys.argv = given
