from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from trainmaster.store.mirror import Mirror, OpenFiles, PlacementMirror
from trainmaster.store.mirror_writer import MirrorWriter


@pytest.fixture
def mirror(tmp_path: Path) -> PlacementMirror:
    return Mirror(tmp_path / "mirror").of("run-abc234", 1)


def test_the_mirrors_length_is_the_cursor_into_the_original(mirror: PlacementMirror) -> None:
    assert mirror.size("supervisor.jsonl") == 0
    mirror.append("supervisor.jsonl", b"one\n")
    mirror.append("supervisor.jsonl", b"two\n")
    assert mirror.size("supervisor.jsonl") == 8
    assert mirror.read("supervisor.jsonl", 4, 100) == b"two\n"
    assert mirror.read("supervisor.jsonl", 0, 2) == b"on"
    assert mirror.read("supervisor.jsonl", 8, 100) == b""
    assert mirror.read("attempts/1/train.log", 0, 100) == b""


def test_a_full_disk_leaves_whole_what_was_mirrored_before(mirror: PlacementMirror) -> None:
    name = "attempts/1/train.log"
    mirror.append(name, b"a" * 1000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
        with pytest.raises(OSError):
            mirror.append(name, b"b" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert mirror.size(name) == 1000
    mirror.append(name, b"b" * 100_000)
    assert mirror.read(name, 0, 1 << 20) == b"a" * 1000 + b"b" * 100_000


def test_files_that_grow_stay_open_until_they_are_put_aside_or_others_need_the_descriptors(
    mirror: PlacementMirror,
) -> None:
    def opened() -> set[str]:
        links = Path("/proc/self/fd").iterdir()
        targets = {os.readlink(link) for link in links if link.is_symlink()}
        return {Path(one).name for one in targets if one.startswith(f"{mirror.root}/")}

    files = OpenFiles(most=2)
    writer = MirrorWriter(mirror, lambda: None, files=files)
    for name, data in (("b", b"1"), ("a", b"12"), ("b", b"2"), ("c", b"12")):
        writer.append(name, data, final=False)
    assert opened() == {"b", "c"}  # "a" was written longest ago
    assert writer.rotate("b", None) == "b.1"
    writer.append("b", b"34", final=False)
    writer.append("a", b"3", final=False)
    assert opened() == {"a", "b"}
    files.close()
    assert opened() == set()
    found = {name: mirror.read(name, 0, 100) for name in ("a", "b", "b.1", "c")}
    assert found == {"a": b"123", "b": b"34", "b.1": b"12", "c": b"12"}


def test_a_file_is_replaced_as_a_whole(mirror: PlacementMirror) -> None:
    mirror.replace("state.json", b"old and longer")
    mirror.replace("state.json", b"new")
    assert mirror.read("state.json", 0, 100) == b"new"
    assert [path.name for path in mirror.root.iterdir()] == ["state.json"]


def test_attempts_are_those_of_which_something_is_mirrored(mirror: PlacementMirror) -> None:
    assert mirror.attempts() == []
    for number in (10, 2, 1):
        mirror.append(f"attempts/{number}/train.log", b"x")
    mirror.append("attempts/not-a-number/train.log", b"x")
    assert mirror.attempts() == [1, 2, 10]


def test_every_placement_of_every_run_is_found(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror")
    assert list(mirror.placements()) == []
    for run, placement in (("b", 1), ("a", 2), ("a", 1)):
        mirror.of(run, placement).append("supervisor.jsonl", b"x")
    (tmp_path / "mirror" / "a" / "plans").mkdir()
    assert list(mirror.placements()) == [("a", 1), ("a", 2), ("b", 1)]
