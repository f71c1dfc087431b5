from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
from pathlib import Path

import pytest
from support.runs.fetch_place import CHANGES, Place
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    let_it_run,
    run_async,
    small_spec,
)

from trainer_runtime.core.files.manifest import verify
from trainmaster.answers.runs import FetchAnswer
from trainmaster.cli.views.blocks import view
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.runs.clean import clean
from trainmaster.runs.fetch import fetch, fetch_below
from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "3"))
MIB = 1 << 20


@pytest.fixture
def place(workspace: Workspace, tmp_path: Path) -> Place:
    return Place(workspace, tmp_path)


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [
        ("checkpoints/step-00000020/*", "checkpoints/step-00000020"),
        ("final/**", "final"),
    ],
)
def test_a_checkpoint_comes_whole_under_its_own_path(
    place: Place, pattern: str, folder: str
) -> None:
    answer = place.fetch(pattern)
    assert folder == "final" or verify(place.folder / folder) == []
    assert [name for name in place.names() if not name.startswith(f"{folder}/")] == []
    place.assert_same()
    assert (answer.files, answer.skipped, answer.more) == (len(place.names()), [], None)
    assert answer.bytes == sum((place.folder / name).stat().st_size for name in place.names())
    assert answer.folder == str(place.folder)
    assert answer.brought is not None
    assert all(path.startswith(folder) for path in answer.brought)
    text = str(view(answer)[0])
    assert folder in text and str(place.folder) in text


def test_the_best_checkpoint_is_the_one_with_the_lowest_loss(place: Place) -> None:
    place.fetch("best")
    index = json.loads((place.box / "checkpoints_index.json").read_bytes())
    (best,) = [item["path"] for item in index["checkpoints"] if "best" in item["tags"]]
    inside = {str(path.relative_to(place.box / best)) for path in (place.box / best).rglob("*")}
    assert set(place.names()) <= inside and verify(place.folder) == []


@pytest.mark.parametrize("pattern", ["final", "latest", "best"])
def test_a_model_comes_as_the_folder_that_was_named(place: Place, pattern: str) -> None:
    answer = place.fetch(pattern)
    assert all((place.folder / name).parent == place.folder for name in place.names())
    assert answer.brought is not None and len(place.names()) == answer.files
    assert place.fetch(pattern).files == answer.files  # the same again: continued


def test_a_model_is_not_put_among_other_files(place: Place) -> None:
    place.fetch("final")
    mine = place.folder / "notes.txt"
    mine.write_text("mine")
    before = place.names()
    assert place.refused("final").code == "FOLDER_NOT_EMPTY"
    assert place.names() == before and mine.read_text() == "mine"


def test_everything_may_be_fetched_but_locks_and_secrets(place: Place) -> None:
    (place.box / ".secrets.json").write_text("{}")
    answer = place.fetch("**")
    assert {item.path for item in answer.skipped} == {"logs/train.log"}
    assert "link" in answer.skipped[0].reason
    assert [name for name in place.names() if name.startswith(".")] == []
    assert "attempts/1/train.log" in place.names()
    place.assert_same()
    assert [item.reason for item in place.fetch(".secrets.json").skipped] == ["is never fetched"]


def test_what_a_pattern_does_not_mean_is_reported(place: Place) -> None:
    for pattern in ("nothing/*", "../*", "/etc/passwd", "", "final/../../*"):
        error = place.refused(pattern) if pattern else UsageError("BAD_ARGUMENT", "", "")
        assert error.code == "BAD_ARGUMENT"
    assert not place.folder.exists()


def test_fetching_again_brings_only_what_is_new(place: Place) -> None:
    place.fetch("final/**")
    before = {name: (place.folder / name).stat() for name in place.names()}
    (place.box / "final" / "notes.txt").write_text("new")
    changed = next(iter(before))
    (place.box / changed).write_text("{}")
    place.fetch("final/**")
    for name, status in before.items():
        is_new = (place.folder / name).stat().st_ino != status.st_ino
        assert is_new == (name == changed), name
    assert "final/notes.txt" in place.names()
    place.assert_same()


def test_a_damaged_checkpoint_is_refused_and_not_put_in_place(place: Place) -> None:
    damaged = next((place.box / "checkpoints/step-00000060").glob("model.*"))
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    error = place.refused("latest")
    assert (error.code, error.retryable) == ("DIGEST_MISMATCH", True)
    name = str(damaged.relative_to(place.box))
    assert name in error.message and name not in place.names()


def test_a_folder_that_can_not_be_written_is_reported(place: Place) -> None:
    place.folder.write_text("a file")
    assert place.refused("final").code == "ROOT_NOT_WRITABLE"


def test_more_than_the_disk_has_room_for_is_refused_at_once(place: Place) -> None:
    with (place.box / "huge").open("wb") as file:
        file.truncate(shutil.disk_usage(place.box).free + (1 << 40))
    assert place.refused("huge").code == "DISK_FULL"
    assert place.names() == []


@pytest.mark.attack
def test_more_than_the_home_may_hold_is_refused_before_anything_is_written(place: Place) -> None:
    home = place.workspace.home
    home.settings.write_text("mirror: {copies_gib: 0.0001}\n")
    (home.downloads / "other").mkdir(parents=True)
    (home.downloads / "other" / "model.bin").write_bytes(bytes(107_000))
    elsewhere, place.folder = place.folder, home.downloads / "fetched"
    error = place.refused("final/*")
    assert (error.code, error.retryable) == ("COPIES_FULL", True)
    assert f"{home.downloads / 'other'} (104 KiB)" in error.fix
    assert not place.folder.exists()
    place.folder = elsewhere
    place.fetch("final/*")
    place.assert_same()
    home.settings.unlink()
    place.folder = home.downloads / "fetched"
    place.fetch("final/*")
    place.assert_same()


def test_what_is_cleaned_is_taken_from_the_mirror_or_refused(place: Place) -> None:
    log = (place.box / "attempts/1/train.log").read_bytes()
    run_async(lambda: clean(place.workspace, place.run))
    place.fetch("attempts/*/train.log")
    assert (place.folder / "attempts/1/train.log").read_bytes() == log
    for pattern in ("final", "checkpoints/*"):
        error = place.refused(pattern)
        assert (type(error), error.code) == (StateError, "RUN_ENDED")


def test_out_of_time_it_pauses_and_the_next_call_continues(place: Place) -> None:
    data = random.Random(3).randbytes(40 * MIB)
    (place.box / "final" / "large.bin").write_bytes(data)
    calls, answer = 0, place.fetch("final/**", bound_s=0.0)
    assert (answer.more, answer.files) == (True, 0)
    while answer.more:
        assert answer.next_step is not None
        answer = place.fetch("final/**", bound_s=2.0)
        calls += 1
        assert calls < 50
    assert calls >= 1
    assert (place.folder / "final" / "large.bin").read_bytes() == data
    place.assert_same()


def test_tools_fetch_below_the_download_folder_alone(place: Place) -> None:
    def below(folder: str) -> FetchAnswer:
        return run_async(
            lambda: fetch_below(place.workspace, place.run, "final", folder, bound_s=30)
        )

    root = place.workspace.home.root / "downloads"
    assert below("").folder == str(root / place.run / "final")
    assert below("mine/here").folder == str(root / "mine/here")
    assert (root / "mine/here/model.bin").is_file()
    (root / "link").symlink_to(place.folder)
    for folder in ("../elsewhere", str(place.folder), "a/../../b", "link", "link/deeper", "/"):
        with pytest.raises(UsageError) as error:
            below(folder)
        assert error.value.code == "BAD_ARGUMENT", folder
    assert not place.folder.exists()
    place.workspace.home.settings.write_text(f"downloads: {place.folder}")
    assert below(str(place.folder / "x")).folder == str(place.folder / "x")
    home = place.workspace.home.root
    place.workspace.home.settings.write_text(f"downloads: {home.parent}")
    for folder in (".", str(home), str(home / "mirror"), str(home / "local" / "runs")):
        with pytest.raises(UsageError, match="keeps its own files"):
            below(folder)
    assert below(str(home / "downloads" / "y")).files


@pytest.mark.long
def test_a_fetch_killed_at_random_moments_ends_with_the_same_bytes(
    command: CommandLine, tmp_path: Path
) -> None:
    run = command("launch", small_spec(tmp_path, **CHANGES))["run_id"]
    command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    box = command.home / "debug" / "runs" / run
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    chosen = random.Random(seed)
    for number in range(3):
        (box / "final" / f"part-{number}.bin").write_bytes(chosen.randbytes(100 * MIB))
    there = tmp_path / "fetched"
    kills = 0
    for _ in range(ROUNDS):
        process = command.start("fetch", run, "final", str(there), "--json")
        let_it_run(chosen.uniform(0.5, 1.6))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
        self_made = list(there.rglob(".*.part"))
        if self_made and chosen.random() < 0.5:  # a disk that flips a bit meanwhile
            flip(chosen.choice(self_made), chosen)
    answer = command("fetch", run, "final", str(there))
    print(f"{kills} kills")
    assert answer["files"] == len([path for path in there.rglob("*") if path.is_file()])
    for path in (box / "final").iterdir():
        assert (there / path.name).read_bytes() == path.read_bytes()


def flip(path: Path, chosen: random.Random) -> None:
    size = path.stat().st_size
    if size == 0:
        return
    at = chosen.randrange(size)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_a_cancelled_fetch_leaves_nothing_behind_that_is_not_resumed(place: Place) -> None:
    (place.box / "final" / "large.bin").write_bytes(random.Random(3).randbytes(70 * MIB))

    async def cancelled() -> None:
        task = asyncio.create_task(fetch(place.workspace, place.run, "final/**", place.folder))
        await asyncio.wait([task], timeout=0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_async(cancelled)
    place.fetch("final/**")
    place.assert_same()
    assert [name for name in place.names() if name.endswith(".part")] == []
