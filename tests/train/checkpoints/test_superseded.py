"""What a start from scratch or from an earlier step leaves behind stays until it is caught up."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from trainer_runtime.core.files.manifest import Manifest, verify
from trainer_runtime.train.attempt.events import EventLog
from trainer_runtime.train.checkpoints.checkpoint_store import (
    CheckpointStore,
    Origin,
    checkpoint_name,
    stored_steps,
)
from trainer_runtime.train.checkpoints.folder import write_folder
from trainer_runtime.train.checkpoints.retention import Retention

pytestmark = pytest.mark.attack

REPOSITORY = Path(__file__).parents[3]
FAULT_ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "3"))
FIRST = {50: 3.0, 100: 2.0, 150: 2.5}


class Attempt:
    """An attempt of a run in a folder, that saves small checkpoints."""

    def __init__(
        self,
        folder: Path,
        number: int,
        started_from: int = 0,
    ) -> None:
        self.folder = folder / "checkpoints"
        self._number = number
        events = EventLog(folder / f"events-{number}.jsonl")
        origin = Origin(number, "0" * 64, started_from)
        retention = Retention(3, 1, None, "val_loss")
        self._store = CheckpointStore(self.folder, origin, retention, events)

    def save(self, losses: Mapping[int, float], *, torn: bool = False) -> list[int]:
        for step, loss in losses.items():

            def write(path: Path, manifest: Manifest, step: int = step) -> Manifest:
                tensors = {"model": {"w": torch.full((1000,), float(step + self._number))}}
                written = write_folder(path, tensors, {}, manifest, lambda: None)
                if torn:
                    os.truncate(path / "model.safetensors", 100)
                return written

            self._store.put(step, {"val_loss": loss}, write, 0.0)
        return stored_steps(self.folder)

    def refuse(self, step: int) -> None:
        def write(path: Path, manifest: Manifest) -> Manifest:
            raise OSError(errno.ENOSPC, "No space left on device")

        self._store.put(step, {}, write, 0.0)

    def saved_by(self, step: int) -> float:
        from trainer_runtime.train.checkpoints.tensors import read_tensors

        path = self.folder / checkpoint_name(step)
        assert verify(path) == []
        return float(read_tensors(path / "model.safetensors")["w"][0]) - step


def test_from_scratch_the_newest_and_the_best_stay_until_one_as_far_is_verified(
    tmp_path: Path,
) -> None:
    Attempt(tmp_path, 1).save({**FIRST, 200: 2.9})
    second = Attempt(tmp_path, 2)
    assert second.save({25: 5.0}) == [25, 100, 200]
    # The kept ones take the places of two of the latest.
    assert second.save({75: 4.0}) == [75, 100, 200]
    assert second.save({110: 3.5}) == [75, 110, 200]
    assert second.save({175: 3.2}) == [110, 175, 200]
    assert second.save({200: 3.1}) == [110, 175, 200]
    assert second.saved_by(200) == 2


def test_from_an_earlier_step_as_well(tmp_path: Path) -> None:
    Attempt(tmp_path, 1).save(FIRST)
    second = Attempt(tmp_path, 2, started_from=50)
    assert second.save({75: 4.0}) == [50, 75, 100, 150]
    assert second.save({160: 3.9})[-1] == 160
    assert 150 not in stored_steps(second.folder)


def test_a_damaged_one_is_no_reason_to_remove_the_one_before(tmp_path: Path) -> None:
    first = Attempt(tmp_path, 1)
    first.save(FIRST)
    os.truncate(first.folder / checkpoint_name(150) / "model.safetensors", 10)
    assert Attempt(tmp_path, 2).save({10: 5.0}) == [10, 100]


def test_a_superseded_checkpoint_outlives_a_failed_save_of_its_step(tmp_path: Path) -> None:
    Attempt(tmp_path, 1).save({50: 3.0})
    second = Attempt(tmp_path, 2)
    assert second.save({50: 4.0}, torn=True) == [50]
    assert second.saved_by(50) == 1
    second.refuse(50)
    assert second.saved_by(50) == 1
    assert second.save({50: 4.0}) == [50]
    assert second.saved_by(50) == 2
    assert [path.name for path in second.folder.iterdir()] == [checkpoint_name(50)]


def test_a_kill_between_write_and_check_leaves_a_whole_one(tmp_path: Path) -> None:
    first = Attempt(tmp_path, 1)
    first.save({50: 3.0})
    aside = first.folder / f".superseded-{checkpoint_name(50)}"
    (first.folder / checkpoint_name(50)).rename(aside)
    assert Attempt(tmp_path, 2).saved_by(50) == 1
    assert not aside.exists()


def test_a_return_to_a_superseded_one_leaves_what_came_between(tmp_path: Path) -> None:
    Attempt(tmp_path, 1).save(FIRST)
    Attempt(tmp_path, 2).save({60: 0.5})
    third = Attempt(tmp_path, 3, started_from=150)
    # Step 60 is of the attempt that was left: it is neither a latest nor the best one now.
    assert 60 not in third.save({175: 2.4})


@pytest.mark.long
def test_kills_of_a_run_from_scratch_never_cost_the_last_verified_one(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    Attempt(tmp_path, 1).save({1000: 2.0})
    for number in range(2, 2 + FAULT_ROUNDS):
        process = subprocess.Popen(
            [sys.executable, __file__, str(tmp_path), str(number)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0.0, 0.3))
        process.kill()
        process.wait()
        process.stdout.close()
        assert Attempt(tmp_path, number).saved_by(1000) == 1


def restart_forever(folder: Path, number: int) -> None:
    """Starts over and over from scratch, and saves steps 1 to 20 and step 1000 torn."""
    while True:
        attempt = Attempt(folder, number)
        attempt.save(dict.fromkeys(range(1, 20), 5.0))
        attempt.save({1000: 1.0}, torn=True)
        print("saving", flush=True)


if __name__ == "__main__":
    restart_forever(Path(sys.argv[1]), int(sys.argv[2]))
