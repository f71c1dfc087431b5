"""The loop against a plain fp32 one, checkpoints against torch.save, events against steps.

Prints ratios of figures that were taken in turns in the same run; nothing here passes or fails.
Each loop has a process of its own, so that neither profits from the other's settings.

    python tests/benchmarks/bench_training.py [--rounds 6] [--steps 20] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import runpy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY))

import torch  # noqa: E402  # the path above makes this runnable from a checkout
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from trainer_runtime.box.prepare.shards import prepare  # noqa: E402
from trainer_runtime.core.config import RunConfig  # noqa: E402
from trainer_runtime.core.files.corpus import Source, fingerprint, list_files  # noqa: E402
from trainer_runtime.core.files.manifest import verify  # noqa: E402
from trainer_runtime.train.attempt.config import read_config  # noqa: E402
from trainer_runtime.train.attempt.events import EventLog  # noqa: E402
from trainer_runtime.train.checkpoints.checkpoint import Checkpoint, Checkpoints  # noqa: E402
from trainer_runtime.train.checkpoints.checkpoint_store import CheckpointStore, Origin  # noqa: E402
from trainer_runtime.train.checkpoints.restore import MODEL, OPTIMIZER  # noqa: E402
from trainer_runtime.train.checkpoints.retention import Retention  # noqa: E402
from trainer_runtime.train.data.batches import Corpus, TrainingData  # noqa: E402
from trainer_runtime.train.loop.run import TrainingRun  # noqa: E402
from trainer_runtime.train.loop.signals import StopSignal  # noqa: E402
from trainmaster.plan.script import training_script  # noqa: E402
from trainmaster.words.assets import find_assets  # noqa: E402

SCRIPT = "train.py"
WARMUP_STEPS = 20


@dataclass(frozen=True)
class Size:
    name: str
    n_layer: int
    n_head: int
    d_model: int
    seq_len: int
    micro_batch: int


SIZES = (
    Size("4 x 128, T 64, B 12", 4, 4, 128, 64, 12),
    Size("6 x 384, T 256, B 8", 6, 6, 384, 256, 8),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=20, help="steps per round")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            steps = arguments.steps if size is SIZES[0] else max(2, arguments.steps // 6)
            config_path = prepared(Path(folder, f"{size.d_model}"), size, arguments.threads)
            compare_loops(size, config_path, arguments.rounds, steps)
        compare_checkpoints(Path(folder))
        measure_events(Path(folder))


def prepared(folder: Path, size: Size, threads: int) -> Path:
    """A run's folder with its script, and its data in the cache: this repository's own sources."""
    folder.mkdir()
    corpus = REPOSITORY / "trainer_runtime"
    listed = Source("main", str(corpus), list_files(corpus))
    model = {"n_layer": size.n_layer, "n_head": size.n_head, "n_kv_head": size.n_head}
    model |= {"d_model": size.d_model, "d_ff": 4 * size.d_model, "vocab_size": 320}
    config: dict[str, Any] = {
        "config_version": 1,
        "framework": "nanogpt",
        "model": {**model, "style": "gpt2", "dropout": 0.0},
        "data": {
            "sources": [{"name": "main", "path": str(corpus), "format": "text"}],
            "tokenizer": "byte",
            "seq_len": size.seq_len,
            "fingerprint": fingerprint([listed], "byte", size.seq_len),
            "cache_dir": str(folder / "cache"),
        },
        "batch": {
            "tokens": size.micro_batch * size.seq_len,
            "micro_batch": size.micro_batch,
            "accumulation": 1,
        },
        "optimizer": {"lr": 1e-3, "weight_decay": 0.1, "grad_clip": 1.0, "betas": [0.9, 0.95]},
        "schedule": {"kind": "constant", "warmup_steps": WARMUP_STEPS},
        "steps": 10**6,
        "precision": "bf16",
        "eval": {"every_steps": None},
        "checkpoint": {"every": 10**6},
        "compute": {"device": "cpu", "threads": threads},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / SCRIPT).write_text(training_script(config, find_assets()))
    prepare(RunConfig.parse(config), lambda line: None)
    return folder / "config.json"


def compare_loops(size: Size, config_path: Path, rounds: int, steps: int) -> None:
    """Both loops in turns; the least time of each counts, the first round is warm-up."""
    loops = {"plain": Worker(plain_loop, config_path), "ours": Worker(our_loop, config_path)}
    best_s = dict.fromkeys(loops, math.inf)
    losses: dict[str, list[float]] = {name: [] for name in loops}
    for round_number in range(rounds + 1):
        for name, worker in loops.items():
            seconds, round_losses = worker.round(steps)
            losses[name] += round_losses
            if round_number:
                best_s[name] = min(best_s[name], seconds / steps)
    for worker in loops.values():
        worker.end()
    plain_loss, our_loss = (sum(losses[name][-steps:]) / steps for name in loops)
    ratio = best_s["plain"] / best_s["ours"]
    print(
        f"loop, {size.name}: plain fp32 {best_s['plain'] * 1e3:.1f} ms, ours "
        f"{best_s['ours'] * 1e3:.1f} ms: {ratio:.2f} x; mean loss of the last {steps} steps "
        f"{plain_loss:.4f} and {our_loss:.4f}",
        flush=True,
    )


class Worker:
    """A loop in a process of its own, which steps when it is reported to."""

    def __init__(self, loop: Callable[[Path, Connection], None], config_path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=loop, args=(config_path, other), daemon=True)
        self._process.start()

    def round(self, steps: int) -> tuple[float, list[float]]:
        self._pipe.send(steps)
        seconds, losses = self._pipe.recv()
        return seconds, losses

    def end(self) -> None:
        self._pipe.send(0)
        self._process.join()


def rounds_of(pipe: Connection, losses: list[float]) -> Iterator[None]:
    """Yields once per step that is asked for; answers each round with its time and losses."""
    while steps := pipe.recv():
        losses.clear()
        started_s = time.perf_counter()
        for _ in range(steps):
            yield
        pipe.send((time.perf_counter() - started_s, list(losses)))


def our_loop(config_path: Path, pipe: Connection) -> None:
    """The real train.py, whose steps wait for the bench."""
    os.chdir(config_path.parent)
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # for the process's whole life
    losses: list[float] = []

    class GatedRun(TrainingRun):
        def steps(self) -> Iterator[int]:
            for _ in rounds_of(pipe, losses):
                yield self.step + 1

        def end_step(self, loss: Tensor, grad_norm: Tensor) -> None:
            super().end_step(loss, grad_norm)
            losses.append(loss.item())

        def finish(self) -> None:
            self.close()

    script = runpy.run_path(SCRIPT)
    script["train"](GatedRun(config_path, StopSignal()))


def plain_loop(config_path: Path, pipe: Connection) -> None:
    """What one writes first: fp32, torch's AdamW, torch's clipping. Starts from equal weights."""
    config = read_config(config_path)
    if config.compute.threads:
        torch.set_num_threads(config.compute.threads)
    torch.manual_seed(config.seed)
    model = PlainGPT(config)
    of_script = runpy.run_path(str(config_path.with_name(SCRIPT)))["GPT"](
        config.model, config.data.seq_len
    )
    for parameter, initial in zip(model.parameters(), of_script.parameters(), strict=True):
        parameter.data.copy_(initial)
    decayed = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config.optimizer.lr, betas=config.optimizer.betas)
    corpus = Corpus.open(config.data.folder, ["main"], config.data.seq_len)
    data = TrainingData(corpus, [1.0], config.seed)
    losses: list[float] = []
    for step, _ in enumerate(rounds_of(pipe, losses), start=1):
        for group in optimizer.param_groups:
            group["lr"] = config.optimizer.lr * min(1.0, step / WARMUP_STEPS)
        inputs, targets = data.next_batch(config.batch.micro_batch)
        loss = model(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.optimizer.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())


class PlainGPT(nn.Module):
    def __init__(self, config: RunConfig) -> None:
        super().__init__()
        model = config.model
        self.tokens = nn.Embedding(model.vocab_size, model.d_model)
        self.positions = nn.Embedding(config.data.seq_len, model.d_model)
        self.blocks = nn.ModuleList(
            PlainBlock(model.d_model, model.n_head) for _ in range(model.n_layer)
        )
        self.norm = nn.LayerNorm(model.d_model, bias=False)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.tokens.weight.T
        return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


class PlainBlock(nn.Module):
    def __init__(self, width: int, n_head: int) -> None:
        super().__init__()
        self.n_head = n_head
        self.norm_1 = nn.LayerNorm(width, bias=False)
        self.to_heads = nn.Linear(width, 3 * width, bias=False)
        self.to_residual = nn.Linear(width, width, bias=False)
        self.norm_2 = nn.LayerNorm(width, bias=False)
        self.widen = nn.Linear(width, 4 * width, bias=False)
        self.narrow = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.to_heads(self.norm_1(x)).chunk(3, dim=-1)
        query, key, value = (
            part.view(batch, length, self.n_head, -1).transpose(1, 2) for part in heads
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.to_residual(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.widen(self.norm_2(x))))


def compare_checkpoints(folder: Path, rounds: int = 5, parameters: int = 30_000_000) -> None:
    """How long the loop stands still for a warm save, against torch.save and fsync."""
    part = {str(index): torch.randn(parameters // 30) for index in range(30)}
    moments = {f"{key}/{name}": tensor.clone() for key in "mv" for name, tensor in part.items()}
    tensors = {MODEL: part, OPTIMIZER: moments}
    events = EventLog(folder / "checkpoint_events.jsonl")
    retention = Retention(1, 0, None, "val_loss")
    store = CheckpointStore(folder / "checkpoints", Origin(1, "", 0), retention, events)
    checkpoints = Checkpoints(store, events)
    checkpoints.allocate(tensors)
    stall_s = plain_s = write_s = math.inf
    for step in range(1, rounds + 1):
        started_s = time.perf_counter()
        checkpoints.save(Checkpoint(step, tensors, {}, {}))
        stall_s = min(stall_s, time.perf_counter() - started_s)
        checkpoints.wait()
        written = checkpoints.last_verified
        write_s = min(write_s, written.write_s if written else math.inf)
        started_s = time.perf_counter()
        with (folder / "plain.pt").open("wb") as file:
            torch.save(tensors, file)
            file.flush()
            os.fsync(file.fileno())
        plain_s = min(plain_s, time.perf_counter() - started_s)
    assert verify(folder / "checkpoints" / f"step-{rounds:08d}") == []
    print(
        f"checkpoint of {12 * parameters / 2**20:.0f} MiB: the loop stands still {stall_s:.3f} s, "
        f"torch.save + fsync {plain_s:.3f} s: {stall_s / plain_s:.2f} x; written in the background "
        f"in {write_s:.2f} s",
        flush=True,
    )


def measure_events(folder: Path, count: int = 5000) -> None:
    """What one metric event costs, against the step of a small model."""
    events = EventLog(folder / "many_events.jsonl")
    values = dict.fromkeys(("loss", "lr", "grad_norm", "tokens_per_s", "mfu", "tflops"), 1.0 / 3.0)
    values |= dict.fromkeys(("clip_fraction", "tokens", "step_time_s", "data_share"), 2.0 / 3.0)
    started_s = time.perf_counter()
    for step in range(count):
        events.emit("metric", step=step, values=values)
    each_s = (time.perf_counter() - started_s) / count
    print(f"one event: {each_s * 1e6:.0f} us, {each_s / 0.020:.2%} of a step of 20 ms", flush=True)


if __name__ == "__main__":
    main()
