"""Trainings to a validation loss: nanoGPT's `train.py` to its end, and a launched run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from support.benchmarks.nanogpt import ITERATION, nanogpt_command, nanogpt_folder
from support.benchmarks.trainings import LaunchedRun, TrainingSize

_EVALUATION = re.compile(r"step (\d+): train loss \S+, val loss (\S+)")
# nanoGPT's own model on the windows that a run of ours is validated on, which are evenly spread.
_LOSS = """\
import sys, numpy, torch
from model import GPT, GPTConfig
saved, tokens, length, batch, batches = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
document = torch.load(saved, map_location="cpu", weights_only=False)
model = GPT(GPTConfig(**document["model_args"])).eval()
model.load_state_dict(document["model"])
read = torch.from_numpy(numpy.fromfile(tokens, numpy.uint16).astype(numpy.int64))
windows = read.as_strided(((len(read) - 1) // length, length + 1), (length, 1))
count = min(batch * batches, len(windows)) // batch * batch
spread = windows[[index * len(windows) // count for index in range(count)]]
with torch.no_grad():
    pairs = [(of[:, :-1].contiguous(), of[:, 1:].contiguous()) for of in spread.split(batch)]
    losses = [model(inputs, targets)[1] for inputs, targets in pairs]
print(torch.stack(losses).mean().item())
"""
KEPT_VARIABLE = "TRAINMASTER_QUALITY"  # a file
_POLL_S = 0.5
_HELD_OUT = 20  # one file of so many
_LARGEST_TEXT = 16_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Text:
    """A text and its held-out part, as files of bytes and as nanoGPT's 16 bits a token."""

    folder: Path
    training: Path
    held_out: Path


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a training came: its validation loss after `tokens` and after `seconds` of its steps,
    evaluations left out; `memory_mb`: the most that its process held."""

    loss: float
    tokens: int
    seconds: float
    memory_mb: float


class KeptOutcomes:
    """Outcomes of trainings by a key, one JSON line each in a file; a key that stands there is not
    trained again."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @classmethod
    def by_environment(cls) -> KeptOutcomes:
        """Kept in the file that the environment names, if any."""
        place = os.environ.get(KEPT_VARIABLE)
        return cls(Path(place) if place else None)

    def of(self, key: str, train: Callable[[], list[Outcome]]) -> list[Outcome]:
        if self._path is None:
            return train()
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        kept = dict(json.loads(line) for line in lines)
        if key not in kept:
            kept[key] = [asdict(outcome) for outcome in train()]
            with self._path.open("a") as file:
                file.write(json.dumps([key, kept[key]]) + "\n")
        return [Outcome(**fields) for fields in kept[key]]


def python_sources(folder: Path) -> Text:
    """The standard library's own Python files, in an order by their names' digests."""
    library = Path(sysconfig.get_path("stdlib"))
    paths = [path for path in library.rglob("*.py") if "site-packages" not in path.parts]
    paths.sort(key=lambda path: hashlib.sha256(str(path.relative_to(library)).encode()).digest())
    parts: dict[str, list[bytes]] = {"train": [], "val": []}
    size = 0
    for number, path in enumerate(paths):
        text = path.read_bytes()
        size += len(text)
        if size > _LARGEST_TEXT:
            break
        parts["train" if number % _HELD_OUT else "val"].append(text)
    folder.mkdir(parents=True, exist_ok=True)
    for name, texts in parts.items():
        whole = b"\n".join(texts)
        (folder / f"{name}.txt").write_bytes(whole)
        (folder / f"{name}.bin").write_bytes(array("H", iter(whole)).tobytes())
    return Text(folder, folder / "train.txt", folder / "val.txt")


def train_nanogpt(
    text: Text, size: TrainingSize, steps: int, *, rate: float, seed: int, evaluated: int
) -> Outcome:
    """nanoGPT's own train.py to its last step, and the loss of what it saved there on
    `evaluated` batches of the held-out text; its seed is one line of the file.

    Raises:
        RuntimeError: it ended without one.
    """
    settings = {
        "device": "cpu",
        "dtype": "float32",
        "compile": False,
        "n_layer": size.n_layer,
        "n_head": size.n_head,
        "n_embd": size.d_model,
        "block_size": size.seq_len,
        "batch_size": size.batch,
        "gradient_accumulation_steps": 1,
        "bias": False,
        "learning_rate": rate,
        "min_lr": rate / 10,
        "warmup_iters": max(1, steps // 50),
        "lr_decay_iters": steps,
        "max_iters": steps,
        "eval_iters": 1,
        "eval_interval": steps,
        "log_interval": 1,
    }
    command = nanogpt_command(text.folder, 256, settings, seed=seed)
    with subprocess.Popen(
        command, cwd=nanogpt_folder(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        lines, memory_mb = [], 0.0
        for line in process.stdout or ():
            lines.append(line)
            memory_mb = max(memory_mb, _most_memory_mb(process.pid))
    printed = "".join(lines)
    evaluations = {int(step): float(loss) for step, loss in _EVALUATION.findall(printed)}
    if steps not in evaluations:  # where it saves, too
        raise RuntimeError(f"nanoGPT ended with {process.returncode}:\n{printed[-2000:]}")
    # The time of a step after an evaluation holds that too.
    of_steps = [
        float(ms) / 1e3
        for step, _, ms in ITERATION.findall(printed)
        if int(step) not in evaluations
    ]
    seconds = sum(of_steps) / len(of_steps) * steps
    saved, held_out = text.folder / "out" / "ckpt.pt", text.folder / "val.bin"
    numbers = map(str, (size.seq_len, size.batch, evaluated))
    program = [sys.executable, "-c", _LOSS, str(saved), str(held_out), *numbers]
    answer = subprocess.check_output(program, cwd=nanogpt_folder(), text=True)
    loss = float(answer.splitlines()[-1])  # the model prints its size before
    return Outcome(loss, steps * size.batch * size.seq_len, seconds, memory_mb)


def train_ours(
    folder: Path,
    text: Text,
    size: TrainingSize,
    steps: int,
    changes: Mapping[str, str],
    *,
    seed: int,
    evaluated: int,
    within_s: float,
) -> list[Outcome]:
    """A launched run's outcomes at each of its validations, over `evaluated` batches.

    `changes`: lines of its spec; `model` has to name the sizes.
    """
    lines = {
        "data": f"{{sources: [{{name: main, path: {text.training}}}], "
        f"validation: [{{name: held_out, path: {text.held_out}}}], tokenizer: byte, "
        f"seq_len: {size.seq_len}}}",
        "steps": str(steps),
        "seed": str(seed),
        "eval": f"{{every_steps: {max(1, steps // 20)}, batches: {evaluated}}}",
        **changes,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with LaunchedRun(folder, size, **lines) as run:
        memory_mb, ends = 0.0, time.monotonic() + within_s
        while not _is_complete(run) and time.monotonic() < ends:
            for pid in run.processes():
                memory_mb = max(memory_mb, _most_memory_mb(pid))
            time.sleep(_POLL_S)
        return _outcomes(_read_events(run), size, memory_mb)


def _is_complete(run: LaunchedRun) -> bool:
    return any(event["kind"] == "completed" for event in _read_events(run))


def _read_events(run: LaunchedRun) -> list[dict[str, Any]]:
    path = run.root / "attempts" / "1" / "events.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def _outcomes(events: list[dict[str, Any]], size: TrainingSize, memory: float) -> list[Outcome]:
    """By the clock of the events, so that saves count."""
    begun_t, evaluating_s, outcomes = 0.0, 0.0, []
    for event in events:
        if event["kind"] == "started":
            begun_t = event["t"]
        elif event["kind"] == "eval":
            evaluating_s += event["seconds"]
            tokens = event["step"] * size.batch * size.seq_len
            seconds = event["t"] - begun_t - evaluating_s
            outcomes.append(Outcome(event["values"]["val_loss"], tokens, seconds, memory))
    return outcomes


def _most_memory_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) / 1e3 if match else 0.0
