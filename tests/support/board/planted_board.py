"""A home as a board shows it: trainings under way, one that failed, one that is done."""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.core.journal_records import (
    EventBody,
    attempt_ended,
    attempt_starting,
    evaluation,
    kept,
    metric,
    started,
    state,
)
from support.machines.rented_instances import rent
from support.runs.planted_journal import PlantedJournal
from support.runs.planted_runs import HALVED, finding

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.protocol.followed_files import JOURNAL
from trainmaster.home.paths import Home
from trainmaster.store.control.volumes import RentedVolume
from trainmaster.sync.workspace import Workspace

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>'
RUNNING = (attempt_starting(1), state("preparing"), state("running"))
_WARMUP, _MAIN = 200, 1400
PROMPT = "Once upon a time"


def configuration(lr: float = 6e-4, layers: int = 12) -> dict[str, Any]:
    """What a plan decides, in part."""
    return {
        "model": {"n_layer": layers, "n_head": 12, "d_model": 768, "vocab_size": 50304},
        "data": {
            "sources": [{"name": "main", "path": "/data/openwebtext", "format": "shards"}],
            "seq_len": 1024,
            "fingerprint": "0123456789abcdef",
        },
        "batch": {"tokens": 491520, "micro_batch": 12, "accumulation": 40},
        "optimizer": {"name": "adamw", "lr": lr, "weight_decay": 0.1, "betas": [0.9, 0.95]},
        "schedule": {"kind": "cosine", "warmup_steps": _WARMUP, "min_lr_ratio": 0.1},
        "eval": {"every_steps": 200, "batches": 20},
        "checkpoint": {"every": "10m", "keep_latest": 3, "keep_best": 1, "metric": "val_loss"},
        "precision": "bf16",
        "seed": 1337,
    }


def spec_of(**fields: Any) -> str:
    return json.dumps({"framework": "nanogpt", "data": {"seq_len": 1024}, **fields})


_STORIES = {
    800: f"there was a a little. She She the the park dog. {HOSTILE}",
    1600: "there was a little girl named Lily. She loved to play in the park with her dog.\n"
    'One day the dog found a ball. "Mine!" said Lily.',
}


def wrote(step: int, text: str, prompt: str = PROMPT) -> EventBody:
    """What a trainer reports of a text that its model wrote."""
    return "eval.samples", {"step": step, "prompt": prompt, "text": text}


def loss_at(step: int, scale: float = 1.0) -> float:
    return 2.9 + scale * 8.0 * math.exp(-step / 160) + 0.9 * math.exp(-step / 900)


class Training:
    """A trainer's lines: noisy curves, from a seed."""

    def __init__(self, target: int, every: int = 4, scale: float = 1.0, lr: float = 6e-4) -> None:
        self.target, self.every, self._scale, self.lr = target, every, scale, lr
        self._random = random.Random(round(1000 * scale))

    def steps(self, first: int, last: int, spike: int | None = None) -> list[EventBody]:
        """The lines of these steps: metrics, evaluations, phases and checkpoints."""
        bodies: list[EventBody] = []
        for step in range(first, last + 1, self.every):
            bodies += self._phase(step)
            near = 0.0 if spike is None or step < spike else math.exp(-(step - spike) / 25)
            loss = loss_at(step, self._scale) + self._random.gauss(0, 0.035) + 2.2 * near
            bodies.append(metric(step, round(loss, 4), **self._beside(step, near)))
            if step % 200 == 0 and step:
                val_loss = round(loss_at(step, self._scale) + 0.06, 4)
                bodies += [evaluation(step, val_loss), *kept(step, val_loss)]
            if step in _STORIES:
                bodies.append(wrote(step, _STORIES[step]))
        return bodies

    def _phase(self, step: int) -> list[EventBody]:
        names = {0: "warmup", _WARMUP: "main", _MAIN: "anneal"}
        return [("phase", {"step": step, "name": names[step]})] if step in names else []

    def _beside(self, step: int, near: float) -> dict[str, float]:
        rest = max(0.0, min(1.0, (step - _WARMUP) / (self.target - _WARMUP)))
        lr = self.lr * min(1.0, step / _WARMUP) * (0.1 + 0.45 * (1 + math.cos(math.pi * rest)))
        return {
            "lr": round(lr, 8),
            "grad_norm": round(0.4 + 2.6 * math.exp(-step / 120) + 3 * near, 4),
            "tokens": step * 491_520,
            "tokens_per_s": round(183_000 + self._random.gauss(0, 1800)),
        }


def sampled(count: int, seed: int) -> list[EventBody]:
    """Telemetry of one GPU."""
    noise = random.Random(seed)
    return [("sample", {"values": _gpu(noise)}) for _ in range(count)]


def _gpu(noise: random.Random) -> dict[str, float]:
    return {
        "gpu_util": min(100.0, 96 + noise.gauss(0, 1.6)),
        "gpu_mem_gib": 61.2 + noise.gauss(0, 0.2),
    }


def plant_pretraining(
    workspace: Workspace, now: float, name: str, training: Training
) -> PlantedJournal:
    """A run that was killed once, recovered, and is in its second attempt."""
    run = PlantedJournal(
        workspace,
        name,
        spec=spec_of(steps=training.target, optimizer={"lr": training.lr}),
        steps=training.target,
        **configuration(training.lr),
    )
    began_t = now - 4000.0
    run.write(*RUNNING, t=began_t)
    run.write(*sampled(180, 1), name=JOURNAL, t=began_t + 30, every_s=21.0)
    run.write(
        started(0, training.target),
        *training.steps(0, 900),
        t=began_t + 20,
        every_s=4.0,
        name="attempts/1/events.jsonl",
    )
    run.write(
        attempt_ended(1, "killed", started_at_step=0, last_step=900),
        state("recovering", reason="killed"),
        attempt_starting(2, why="killed"),
        state("preparing"),
        ("attempt_running", {"attempt": 2}),
        state("running"),
        t=began_t + 1200,
    )
    second = training.steps(800, training.target * 8 // 10, spike=1160)
    run.write(
        started(800, training.target),
        *second,
        t=began_t + 1230,
        every_s=2770.0 / len(second),
        name="attempts/2/events.jsonl",
    )
    run.write(
        finding(
            "5b1c0a0a",
            "loss_spike",
            "warning",
            attempt=2,
            step=1160,
            explanation="The loss is far above its recent median.",
            evidence=["step 1160 | loss 5.21", HOSTILE],
            advice=[],
        ),
        t=now - 900,
    )
    run.write(("heartbeat", {}), t=now)
    return run


@contextmanager
def followed_elsewhere(home: Path, host: str = "gpu1") -> Iterator[None]:
    """Inside, another process follows the planted runs' host."""
    lock = try_lock(Home(home).follower_lock(host))
    assert lock is not None
    try:
        yield
    finally:
        os.close(lock)


def plant_board(workspace: Workspace) -> Sequence[PlantedJournal]:
    """Two pre-trainings to compare, an SFT that ran out of memory, and one that is done."""
    now = time.time()
    first = plant_pretraining(workspace, now, "gpt2-124m", Training(2000))
    other = plant_pretraining(
        workspace, now, "gpt2-124m-lr3e-4", Training(2000, scale=1.25, lr=3e-4)
    )
    done = _ended(workspace, now, "tiny-stories", "completed")
    failed = _ended(workspace, now, "sft-qwen", "failed")
    rent(workspace, "gpu1", usd_per_h=2.99, hours=12.0, since_t=now - 4100.0)
    workspace.control.volumes.put(_volume(now))
    return first, other, done, failed


def _volume(now: float) -> RentedVolume:
    return RentedVolume(
        tag="tm-0a1b2c-volume",
        name="data",
        provider="runpod",
        region="US-TX-3",
        size_gb=100,
        usd_per_h=0.0098,
        intended_t=now - 4100.0,
        lease_end_t=now + 600_000.0,
        budget_usd=1.64,
        create_requested_t=now - 4100.0,
        created_t=now - 4100.0,
        provider_id="9",
    )


def _ended(workspace: Workspace, now: float, name: str, how: str) -> PlantedJournal:
    batch = {"tokens": 8192, "micro_batch": 8, "accumulation": 1}
    spec = spec_of(steps=400, batch={"tokens": 8192})
    config = {**configuration(), "batch": batch, "steps": 400}
    run = PlantedJournal(workspace, name, spec=spec, **config)
    training, last = Training(400, scale=0.7), 400 if how == "completed" else 120
    run.write(*RUNNING, t=now - 7000.0)
    run.write(
        started(0, 400),
        *training.steps(0, last),
        t=now - 6990.0,
        every_s=2.0,
        name="attempts/1/events.jsonl",
    )
    if how == "failed":
        run.write(
            finding(
                "0a0a0a0a",
                patches=[HALVED],
                step=119,
                evidence=[
                    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
                    HOSTILE,
                ],
            ),
            t=now - 6500.0,
        )
    run.write(
        attempt_ended(1, "crashed" if how == "failed" else how, last_step=last),
        state(how, reason="crashed" if how == "failed" else how, generation=1),
        ("closed", {}),
        t=now - 6400.0,
    )
    workspace.control.close_run(run.run_id, 1)
    return run
