"""What the tests of trainers share: a prepared corpus, tiny models on it, and runs' folders."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.host.run_configs import Config, Events, bytes_of, changed, model_of, pretraining
from support.plan.rendered import SCRIPT, write_script
from support.runs.running_run import LONGEST_S, own_run_id

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.corpus import Source, fingerprint, list_files
from trainer_runtime.core.frameworks import launching
from trainer_runtime.core.protocol.lines import complete_lines, decode
from trainer_runtime.host.prepare.byte_shards import END_OF_TEXT
from trainer_runtime.host.prepare.shards import prepare

RUN_ID = own_run_id("tiny")

REPOSITORY = Path(__file__).parents[3]
SEQ_LEN = 32
LOSSES = ("loss", "grad_norm", "lr", "val_loss")


def prepared_config(folder: Path, framework: str, text: bytes, **others: bytes) -> Config:
    """The configuration of a run with dropout on a corpus that is prepared under `folder`.

    `others` are further sources' texts by name.
    """
    texts = {"main": text, **others}
    for name, content in texts.items():
        (folder / name).mkdir()
        (folder / name / "self.py").write_bytes(content)
    data = bytes_of({name: folder / name for name in texts}, SEQ_LEN, folder / "cache")
    size = {"n_layer": 2, "n_head": 2, "d_model": 32, "d_ff": 64}
    config = changed(
        pretraining(
            framework, model_of(size, vocab_size=257), data, {"micro_batch": 4, "accumulation": 2}
        ),
        {
            "run_id": RUN_ID,
            "name": "tiny",
            "model__dropout": 0.1,
            "optimizer__lr": 0.003,
            "schedule__kind": "cosine",
            "steps": 40,
            "eval": {"every_steps": 10, "batches": 2},
            "checkpoint__keep_best": 1,
        },
    )
    prepare(RunConfig.parse(config), print)
    return config


def with_own_validation(config: Config, folder: Path) -> Config:
    """The configuration on the same tokens, prepared again under `folder`: those that each source
    holds out so far are a file of `data.validation`, named `own-SOURCE`."""
    data = RunConfig.parse(config).data
    sources, validation = [], []
    for source in config["data"]["sources"]:
        name = source["name"]
        # A byte less: the end of the text is now a token of the training.
        train, own = _text(data.folder, "train", name)[:-1], _text(data.folder, "val", name)
        for part, named, content in ((sources, name, train), (validation, f"own-{name}", own)):
            (folder / named).mkdir(parents=True)
            (folder / named / "text").write_bytes(content)
            part.append({**source, "name": named, "path": str(folder / named)})
    listed = [
        Source(one["name"], one["path"], list_files(Path(one["path"])), held_out=held_out)
        for part, held_out in ((sources, False), (validation, True))
        for one in part
    ]
    own_data = {
        "sources": sources,
        "validation": validation,
        "fingerprint": fingerprint(listed, "byte", data.seq_len),
    }
    config = {**config, "data": {**config["data"], **own_data}}
    prepare(RunConfig.parse(config), print)
    return config


def _text(entry: Path, split: str, name: str) -> bytes:
    tokens = array("H", (entry / f"{split}-{name}.bin").read_bytes())
    return bytes(token for token in tokens if token < END_OF_TEXT)


class RunFolder:
    """A run's folder as a trainer finds it, and what attempts leave in it."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder = folder
        self.config = config
        folder.mkdir()
        write_script(folder, config)
        self.write_config("config.json", config)

    def write_config(self, name: str, config: Config) -> Path:
        """Writes a configuration with the framework's own files beside it."""
        path = self.folder / name
        texts = {**launching.files(RunConfig.parse(config)), path.name: json.dumps(config)}
        for file, text in texts.items():
            (path.parent / file).parent.mkdir(parents=True, exist_ok=True)
            (path.parent / file).write_text(text)
        return path

    def attempt_config(self, **attempt: Any) -> str:
        """The name of a configuration of an attempt of its own, such as `number=2`."""
        name = f"attempts/{attempt['number']}/config.json"
        self.write_config(name, {**self.config, "attempt": attempt})
        return name

    def events(self, folder: str = ".") -> Events:
        path = self.folder / folder / "events.jsonl"
        lines, _ = complete_lines(path.read_bytes() if path.exists() else b"")
        return [decode(line).document for line in lines]

    def values_by_step(self, *keys: str) -> dict[tuple[str, int], tuple[Any, ...]]:
        """The newest values of every step and evaluation."""
        return {
            (event["kind"], event["step"]): tuple(event["values"].get(key) for key in keys)
            for event in self.events()
            if event["kind"] == "eval" or (event["kind"] == "metric" and "loss" in event["values"])
        }

    def weights(self) -> bytes:
        return (self.folder / "final/model.safetensors").read_bytes()

    def steps_stored(self) -> list[int]:
        return sorted(int(path.name[5:]) for path in self.folder.glob("checkpoints/step-*"))


class TinyRun(RunFolder):
    """A run's folder, and its attempts at training in it, in processes of their own.

    `first` stands before the repository on the path that their Python imports from.
    """

    def __init__(self, folder: Path, config: Config, first: Path = REPOSITORY) -> None:
        super().__init__(folder, config)
        self.first = first

    def start(self, config: str = "config.json") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, SCRIPT, config],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": f"{self.first}:{REPOSITORY}",
                "PYTHONUNBUFFERED": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def train(self, **attempt: Any) -> tuple[int, str, str]:
        """The exit code, stdout and stderr of one attempt; `attempt` goes into its own config."""
        process = self.start(self.attempt_config(**attempt) if attempt else "config.json")
        output, errors = process.communicate(timeout=LONGEST_S)
        return process.returncode, output, errors

    def end_at(self, step: int, with_signal: signal.Signals) -> int:
        """Starts, sends the signal once this process reported the step's metrics; the exit code."""
        before = len(self.events())
        process = self.start()
        wait_for(process, lambda: any(metric_step(e) >= step for e in self.events()[before:]))
        process.send_signal(with_signal)
        process.communicate(timeout=LONGEST_S)
        return process.returncode


def metric_step(event: dict[str, Any]) -> int:
    return event["step"] if event["kind"] == "metric" else -1


def wait_for(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    """Returns when it happened or the process ended; checks whenever the process prints."""
    while process.poll() is None and not happened():
        select.select([process.stdout], [], [], 0.01)
