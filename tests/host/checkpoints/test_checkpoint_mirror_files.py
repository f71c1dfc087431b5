"""Second copies of checkpoints on another disk of the box."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.core.journal_records import EventBody, kept, metric, started
from support.host.scripted_processes import Box, Life
from support.runs.running_run import let_it_run, wait_until

from trainer_runtime.core.files import manifest
from trainer_runtime.core.files.manifest import ChunkHasher, Manifest, verify
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.states import PlacementState
from trainer_runtime.host.checkpoints.copy import NotCopiedError, copy_checkpoints

REPOSITORY = Path(__file__).parents[3]
COMPLETED: tuple[EventBody, ...] = (
    started(),
    metric(1),
    *kept(50),
    metric(100),
    *kept(100),
    ("completed", {"step": 100, "final": "final"}),
)
NAMES = ["step-00000050", "step-00000100"]


def save(folder: Path, step: int, attempt: int = 1, size: int = 3000) -> Path:
    """A checkpoint as a trainer leaves it."""
    checkpoint = folder / f"step-{step:08d}"
    shutil.rmtree(checkpoint, ignore_errors=True)
    checkpoint.mkdir(parents=True)
    entries = []
    for name in ("model.safetensors", "optimizer.safetensors"):
        data = random.Random(f"{name}{step}{attempt}").randbytes(size)
        (checkpoint / name).write_bytes(data)
        hasher = ChunkHasher()
        hasher.update(data)
        entries.append(hasher.entry(name))
    made = Manifest(step, attempt, 0.0, {}, (), "0" * 64, tuple(entries))
    (checkpoint / "manifest.json").write_bytes(manifest.build(made))
    return checkpoint


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("step-*"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "checkpoints"
    save(folder, 50)
    save(folder, 100)
    return folder


def test_copies_are_whole_and_made_once(source: Path, tmp_path: Path) -> None:
    place = tmp_path / "other disk" / "run"
    assert copy_checkpoints(source, place, NAMES) == 100
    assert [verify(place / name) for name in NAMES] == [[], []]
    before = (place / NAMES[0]).stat().st_ino
    assert copy_checkpoints(source, place, NAMES) == 100
    assert (place / NAMES[0]).stat().st_ino == before
    assert steps(place) == NAMES
    assert [path for path in place.rglob(".*") if path.name != ".lock"] == []


def test_what_is_not_wanted_any_more_goes_once_a_newer_one_is_there(
    source: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    copy_checkpoints(source, place, NAMES)
    assert copy_checkpoints(source, place, ["step-00000150"]) == 100
    assert steps(place) == NAMES
    save(source, 150)
    assert copy_checkpoints(source, place, ["step-00000150"]) == 150
    assert steps(place) == ["step-00000150"]


def test_a_step_that_was_saved_again_is_copied_again(source: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    copy_checkpoints(source, place, NAMES)
    save(source, 100, attempt=2)
    copy_checkpoints(source, place, NAMES)
    assert manifest.read(place / NAMES[1]).attempt == 2
    assert verify(place / NAMES[1]) == []


def test_a_damaged_checkpoint_is_refused_and_the_copies_stay(source: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    copy_checkpoints(source, place, NAMES[:1])
    with (source / NAMES[1] / "model.safetensors").open("r+b") as file:
        file.write(b"damaged")
    with pytest.raises(NotCopiedError, match="differs from its manifest"):
        copy_checkpoints(source, place, NAMES)
    assert steps(place) == NAMES[:1]


def test_a_link_among_a_checkpoints_files_is_not_followed(source: Path, tmp_path: Path) -> None:
    model = source / NAMES[1] / "model.safetensors"
    model.rename(tmp_path / "private")
    model.symlink_to(tmp_path / "private")
    with pytest.raises(OSError, match="symbolic link"):
        copy_checkpoints(source, tmp_path / "place", NAMES)


@pytest.mark.slow
def test_a_copy_killed_at_any_moment_is_resumed(tmp_path: Path) -> None:
    run, place = tmp_path / "run", tmp_path / "place"
    for step in (50, 100):
        save(run / "checkpoints", step, size=40 << 20)
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    chosen = random.Random(seed)
    command = [sys.executable, "-m", "trainer_runtime", "mirror", str(run), str(place), *NAMES]
    for _ in range(6):
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
        let_it_run(chosen.uniform(0.05, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait()
        for name in steps(place / "run"):
            assert verify(place / "run" / name) == []
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"step": 100}
    assert [verify(place / "run" / name) for name in NAMES] == [[], []]


@pytest.fixture
def box(tmp_path: Path) -> Box:
    box = Box(tmp_path / "runs" / "small-abc234", {1: Life(COMPLETED)}, now=time.time())
    place = tmp_path / "other" / "disk"
    box.set_up(checkpoint={"metric": "val_loss", "mirror": f"host:{place}"})
    (box.root / "trainer_runtime").symlink_to(REPOSITORY / "trainer_runtime")
    return box


def to_the_end(box: Box) -> Record:
    """As `Box.to_the_end`, but beside real processes."""
    supervisor = box.supervisor()

    def ended() -> bool:
        box.now += 0.02
        for name in NAMES:  # what scripted trainers leave is not a checkpoint
            folder = box.run.checkpoints / name
            if folder.exists() and not (folder / "model.safetensors").exists():
                save(box.run.checkpoints, int(name[5:]))
        return supervisor.tick()

    wait_until(ended, "the end of the run")
    supervisor.close()
    return box.record()


def test_the_supervisor_has_verified_checkpoints_copied_before_it_ends(
    box: Box, tmp_path: Path
) -> None:
    record = to_the_end(box)
    assert (record.state, record.closed) == (PlacementState.COMPLETED, True)
    place = tmp_path / "other" / "disk" / box.root.name
    assert [verify(place / name) for name in NAMES] == [[], []]
    assert (record.mirrored_step, record.mirror_problem) == (100, None)
    assert json.loads(box.run.state.read_bytes())["mirrored_step"] == 100


def test_a_place_that_can_not_be_written_is_a_warning_and_no_failure(
    box: Box, tmp_path: Path
) -> None:
    (tmp_path / "other").write_text("in the way")
    record = to_the_end(box)
    assert (record.state, record.closed) == (PlacementState.COMPLETED, True)
    assert record.mirrored_step is None
    assert "disk" in (record.mirror_problem or "")
    kinds = [event["kind"] for event in box.journal()]
    assert kinds.count("mirror_failed") <= 3


def test_a_supervisor_without_a_place_copies_nothing(box: Box, tmp_path: Path) -> None:
    box.set_up(checkpoint={"metric": "val_loss", "mirror": "operator"})
    assert box.to_the_end().closed
    assert not (tmp_path / "other").exists()
