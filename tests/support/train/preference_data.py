"""Real trainings by TRL on a tiny model, in this process, among them DPO that goes wrong.

`python -m tests.preference KIND FOLDER` makes one of `KINDS` and prints where its events are.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.plan.rendered import load_script, write_script
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import byte_tokenizer, launching
from trainer_runtime.core.protocol.lines import complete_lines, decode

SEQ_LEN = 64
Row = dict[str, Any]

# What is changed in the healthy training, by what it then comes to.
KINDS: dict[str, dict[str, Any]] = {
    "healthy": {},
    # Both answers lose all probability, the rejected one faster; margins near 40, no entropy.
    "left_reference": {"optimizer": {"lr": 0.3}, "schedule": {"kind": "constant"}},
    # A tenth of the usual pull towards the reference, at twenty times the rate: margins of 12,
    # though each nat counts a hundredth, and hardly any entropy.
    "overoptimized": {
        "optimizer": {"lr": 0.02, "grad_clip": 100.0},
        "schedule": {"kind": "constant"},
        "method_args": {"beta": 0.01},
    },
    # From the middle on the better answer is marked as the worse one: margins turn negative.
    "swapped": {"schedule": {"kind": "constant"}},
}


@dataclass
class TrlRun:
    """A run's folder, and its attempts at training in it."""

    folder: Path
    config: dict[str, Any]
    attempts: int = field(default=0, init=False)

    def prepare(self, resume: Mapping[str, Any] | None = None) -> Path:
        """The next attempt's config.json, with the framework's files beside it, and train.py."""
        self.attempts += 1
        write_script(self.folder, self.config)
        attempt = {"number": self.attempts, "resume": dict(resume or {"mode": "latest"})}
        config = {**self.config, "attempt": attempt}
        path = self.folder / "attempts" / str(self.attempts) / "config.json"
        for name, text in launching.files(RunConfig.parse(config)).items():
            (path.parent / name).parent.mkdir(parents=True, exist_ok=True)
            (path.parent / name).write_text(text)
        path.write_text(json.dumps(config))
        return path

    def train(self, **resume: Any) -> int:
        """The exit code of one attempt in this process."""
        config_path = self.prepare(resume or None).relative_to(self.folder)
        script = load_script(self.folder)
        with contextlib.chdir(self.folder), kept_signals():
            return int(script.run(script.train, config_path))

    def events(self) -> list[dict[str, Any]]:
        """Of all attempts, in their order."""
        found = []
        for number in range(1, self.attempts + 1):
            path = self.folder / "attempts" / str(number) / "events.jsonl"
            lines, _ = complete_lines(path.read_bytes() if path.exists() else b"")
            found += [decode(line).document for line in lines]
        return found

    def series(self, key: str, kind: str = "metric") -> dict[int, Any]:
        """The newest value of every step."""
        return {
            event["step"]: event["values"][key]
            for event in self.events()
            if event["kind"] == kind and key in event["values"]
        }


@contextlib.contextmanager
def kept_signals() -> Iterator[None]:
    """Puts back the handlers of signals that a training in this process takes over."""
    import signal

    taken = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def save_tiny_model(folder: Path) -> Path:
    """A model of the least size, with the byte tokenizer beside it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = LlamaConfig(
        vocab_size=byte_tokenizer.VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=SEQ_LEN,
        **dict.fromkeys(
            ("bos_token_id", "eos_token_id", "pad_token_id"), byte_tokenizer.END_OF_TEXT
        ),
    )
    LlamaForCausalLM(sizes).save_pretrained(folder)
    for name, text in byte_tokenizer.files().items():
        (folder / Path(name).name).write_text(text)
    return folder


def pairs(count: int, *, swapped: bool = False) -> list[Row]:
    """Sums with a correct and a wrong answer: easy to distinguish."""
    rows = []
    for number in range(count):
        first, second = number % 9, number * 7 % 10
        good = f" it is {first + second}, glad to help"
        bad = f" no idea, go away {second}"
        chosen, rejected = (bad, good) if swapped else (good, bad)
        rows.append(
            {"prompt": f"What is {first} + {second}?", "chosen": chosen, "rejected": rejected}
        )
    return rows


def write_rows(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def make_run(
    folder: Path, weights: Path, rows: Path, method: str, **changes: Mapping[str, Any] | Any
) -> TrlRun:
    """A run of twelve steps of four rows; `changes` are sections' changes, or values."""
    folder.mkdir(parents=True)
    sizes = {"n_layer": 2, "n_head": 2, "n_kv_head": 1, "d_model": 32, "d_ff": 64}
    config: dict[str, Any] = {
        "config_version": 1,
        "run_id": "tiny-abc234",
        "name": "tiny",
        "framework": "trl",
        "method": method,
        "method_args": {},
        "model": {
            **sizes,
            "vocab_size": byte_tokenizer.VOCABULARY,
            "style": "llama",
            "dropout": 0.0,
            **dict.fromkeys(("preset", "hub", "revision")),
            "path": str(weights),
        },
        "adapter": None,
        "data": {
            "sources": [
                {"name": "main", "path": str(rows), "format": "jsonl", "weight": 1.0},
            ],
            "tokenizer": "byte",
            "seq_len": SEQ_LEN,
            "fingerprint": rows.stem,
            "cache_dir": str(folder.parent / "cache"),
            "skip": [],
            "form": "dataset",
        },
        "batch": {"tokens": 4 * SEQ_LEN, "micro_batch": 2, "accumulation": 2},
        "optimizer": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.0, "grad_clip": 1.0},
        "schedule": {"kind": "cosine", "warmup_steps": 2, "min_lr_ratio": 0.1},
        "steps": 12,
        "precision": "fp32",
        "seed": 1337,
        "eval": {"every_steps": 6, "batches": 2},
        "checkpoint": {"every": 6, "keep_latest": 3, "keep_best": 1, "metric": "val_loss"},
        "compute": {"device": "cpu", "threads": 1, "compile": False, "processes": 1},
        "tracking": {},
    }
    for section, value in changes.items():
        changed = isinstance(value, Mapping) and isinstance(config.get(section), Mapping)
        config[section] = {**config[section], **value} if changed else value
    return TrlRun(folder, config)


def train_kind(kind: str, folder: Path, steps: int = 80) -> TrlRun:
    """One of `KINDS`, trained to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    model = save_tiny_model(folder / "model")
    rows = write_rows(folder / "pairs.jsonl", pairs(4 * steps))
    every = {"eval": {"every_steps": 10, "batches": 4}, "checkpoint": {"every": steps // 2}}
    batch = {"micro_batch": 4, "accumulation": 1}
    run = make_run(
        folder / kind, model, rows, "dpo", steps=steps, batch=batch, **every, **KINDS[kind]
    )
    if kind == "swapped":
        run.config["steps"] = steps // 2
        assert run.train() == 0
        swapped = write_rows(folder / "swapped.jsonl", pairs(4 * steps, swapped=True))
        run.config["data"]["sources"][0]["path"] = str(swapped)
        run.config["data"]["fingerprint"] = "swapped"
        run.config["steps"] = steps
    assert run.train() == 0
    return run


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    made = train_kind(sys.argv[1], Path(sys.argv[2]))
    print(made.folder / "attempts")
