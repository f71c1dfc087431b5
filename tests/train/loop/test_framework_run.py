"""The attempt of a framework's loop, with a loop of our own in the framework's place."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.host.tiny_training import RunFolder

from trainer_runtime.core.files.manifest import verify
from trainer_runtime.train.loop.framework_run import FrameworkRun, run

STEPS = 6
CONFIG: dict[str, Any] = {
    "config_version": 1,
    "framework": "litgpt",
    "data": {
        "sources": [{"name": "main"}],
        "tokenizer": "byte",
        "seq_len": 32,
        "fingerprint": "0" * 16,
        "cache_dir": "/nowhere",
    },
    "batch": {"tokens": 256, "micro_batch": 4, "accumulation": 2},
    "optimizer": {"name": "adamw", "lr": 0.003, "weight_decay": 0.1, "grad_clip": 1.0},
    "schedule": {"kind": "cosine"},
    "steps": STEPS,
    "checkpoint": {"every": 2, "keep_latest": 2, "keep_best": 0},
    "compute": {"device": "cpu", "threads": 1},
}
Loop = Callable[[FrameworkRun], None]


class Folder(RunFolder):
    def write_config(self, name: str, config: dict[str, Any]) -> Path:
        path = self.folder / name
        path.write_text(json.dumps(config))
        return path

    def attempt(self, loop: Loop) -> int:
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            with contextlib.chdir(self.folder):
                return run(loop, Path("config.json"))
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def events_of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events() if event["kind"] == kind]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "run", CONFIG)


def loop(attempt: FrameworkRun, write: Callable[[Path, int], None], until: int = STEPS) -> None:
    """What a framework does, in small: steps, saves where it is asked to, the final model."""
    attempt.choose_checkpoint()
    attempt.begin(parameters=10)
    for step in range(attempt.step + 1, until + 1):
        attempt.guard(1.0 / step, 0.5)
        attempt.end_step(step, {"loss": 1.0 / step, "lr": 0.1, "grad_norm": 2.0})
        due = attempt.due()
        if due.save:
            written = attempt.writing_folder / f"at-{step}"
            if attempt.try_write(partial(write, written, step), written):
                attempt.saved(written, 0.0)
        if due.stop:
            attempt.stopped()
            return
    if attempt.is_at_target:
        final = attempt.writing_folder / "final"
        write(final, attempt.step)
        attempt.completed(final)


def write_files(folder: Path, step: int) -> None:
    (folder / "optimizer").mkdir(parents=True)
    (folder / "model.bin").write_bytes(bytes(step))
    (folder / "optimizer/rank-0.bin").write_bytes(bytes(2 * step))


def test_what_the_framework_wrote_becomes_checkpoints_and_the_final_model(folder: Folder) -> None:
    assert folder.attempt(lambda attempt: loop(attempt, write_files)) == 0
    assert folder.steps_stored() == [4, 6]
    checkpoint = folder.folder / "checkpoints/step-00000006"
    assert verify(checkpoint) == verify(folder.folder / "final") == []
    assert (checkpoint / "optimizer/rank-0.bin").read_bytes() == bytes(12)
    clipped = [event["values"]["clip_fraction"] for event in folder.events_of_kind("metric")]
    assert clipped == [1.0] * STEPS
    assert folder.events_of_kind("completed")[0]["step"] == STEPS
    assert sorted(path.name for path in folder.folder.iterdir()) == [
        "checkpoints", "config.json", "events.jsonl", "final", "train.py",
    ]  # fmt: skip


def test_a_framework_that_returns_before_the_target_has_not_completed(folder: Folder) -> None:
    assert folder.attempt(lambda attempt: loop(attempt, write_files, until=5)) == 1
    assert folder.events_of_kind("completed") == []


def test_a_signal_saves_the_finished_step_and_the_next_attempt_resumes(
    folder: Folder,
) -> None:
    def write_and_terminate(written: Path, step: int) -> None:
        write_files(written, step)
        if step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    assert folder.attempt(lambda attempt: loop(attempt, write_and_terminate)) == 75
    assert folder.steps_stored() == [2, 3]
    assert folder.attempt(lambda attempt: loop(attempt, write_files)) == 0
    assert [event["resumed_from"] for event in folder.events_of_kind("started")] == [None, 3]


def test_a_checkpoint_that_can_not_be_written_is_reported_and_leaves_nothing(
    folder: Folder,
) -> None:
    def write_all_but_one(written: Path, step: int) -> None:
        if step != 4:
            write_files(written, step)

    assert folder.attempt(lambda attempt: loop(attempt, write_all_but_one)) == 0
    assert folder.steps_stored() == [2, 6]
    assert [event["code"] for event in folder.events_of_kind("warning")] == ["checkpoint_failed"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_framework_that_finds_no_room_to_write_loses_that_checkpoint_alone(
    folder: Folder, error: Exception
) -> None:
    def write_but_one(written: Path, step: int) -> None:
        write_files(written, step)
        if step == 4:
            raise error

    assert folder.attempt(lambda attempt: loop(attempt, write_but_one)) == 0
    assert folder.steps_stored() == [2, 6]
    assert [(event["code"], event["step"]) for event in folder.events_of_kind("warning")] == [
        ("checkpoint_failed", 4)
    ]
    failed = next(
        event for event in folder.events_of_kind("checkpoint") if event["action"] == "failed"
    )
    assert failed["path"] == "checkpoints/step-00000004"
    assert not (folder.folder / "checkpoints/.writing-by-framework").exists()


def test_what_fails_while_writing_for_another_reason_ends_the_attempt(folder: Folder) -> None:
    def out_of_memory(written: Path, step: int) -> None:
        raise RuntimeError("CUDA out of memory")

    with pytest.raises(RuntimeError):
        folder.attempt(lambda attempt: loop(attempt, out_of_memory))


def test_an_end_whose_state_is_not_saved_is_no_completion(folder: Folder) -> None:
    def write_all_but_the_last(written: Path, step: int) -> None:
        if step != STEPS:
            write_files(written, step)

    assert folder.attempt(lambda attempt: loop(attempt, write_all_but_the_last)) == 1
    assert folder.events_of_kind("completed") == []


def test_a_step_that_is_no_number_ends_the_attempt_before_it_counts(folder: Folder) -> None:
    def diverge(attempt: FrameworkRun) -> None:
        attempt.choose_checkpoint()
        attempt.begin(parameters=10)
        attempt.guard(2.0, float("inf"))

    assert folder.attempt(diverge) == 76
    assert folder.events_of_kind("warning")[0]["code"] == "nan_grad"
    assert folder.events_of_kind("metric")[0]["values"] == {"loss": 2.0, "grad_norm": "Infinity"}
