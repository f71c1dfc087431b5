"""Runs that a scripted host watches: what their trainers do, and what is recorded of it."""

from __future__ import annotations

from typing import Any

from support.core.journal_records import EventBody, kept, metric, started
from support.host.scripted_processes import Box, Life

from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.protocol.lines import Event

CRASHED, KILLED, GUARD = Exit(1, None), Exit(None, 9), Exit(76, None)
COMPLETED = Life((started(), metric(1), metric(100), *kept(100), ("completed", {"step": 100})))
BATCH = {"micro_batch": 8, "accumulation": 2}
CUDA_OOM = (
    "Traceback (most recent call last):\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which 1.06 GiB is free.\n"
)
NO_MEMORY = (
    "Traceback (most recent call last):\n"
    "RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't "
    "allocate memory: you tried to allocate 2147483648 bytes. Error code 12 (Cannot allocate "
    "memory)\n"
)
NO_SYMBOL = (
    "ImportError: /site-packages/flash_attn_2_cuda.so: undefined symbol: "
    "_ZN3c105ErrorC2ENS_14SourceLocationESs\n"
)
STEADY: tuple[EventBody, ...] = (started(), *(metric(step) for step in range(1, 21)))
SPIKE: tuple[EventBody, ...] = (
    started(),
    *(metric(step, 2.5 + 0.01 * (step % 5)) for step in range(1, 60)),
    *kept(50),
    *(metric(step, 9.0 + 0.01 * (step % 5)) for step in range(60, 130)),
)


def lived(box: Box, *lives: Life, **recovery: Any) -> Box:
    box.lives = dict(enumerate(lives, 1))
    rules = {"max_restarts": 3, "on_crash": "resume", "on_nan": "rewind_skip_data", **recovery}
    box.set_up(batch=BATCH, recovery=rules, optimizer={"lr": 0.001, "grad_clip": 1.0})
    return box


def recorded(box: Box, kind: str = "finding") -> list[Event]:
    return [event for event in box.journal() if event["kind"] == kind]


def codes(box: Box) -> list[tuple[int, str]]:
    """Attempt and code of each finding, in the order in which they were opened."""
    opened: dict[str, tuple[int, str]] = {}
    for event in recorded(box):
        opened.setdefault(event["finding"]["id"], (event["attempt"], event["finding"]["code"]))
    return list(opened.values())
