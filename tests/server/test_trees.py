"""Trees of files on their way to a machine: exact, resumed, and never outside their folder."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from running import run_async

from trainmaster.assets import find_assets
from trainmaster.errors import TrainmasterError
from trainmaster.hosts import LocalHost, Stream
from trainmaster.hosts.tree_files import TreeFile, files_of_folder
from trainmaster.hosts.trees import Sent, TreeProgress, put_tree

REPOSITORY = Path(__file__).parents[2]
_SENDER = """
import asyncio, sys
from pathlib import Path
from trainmaster.hosts import LocalHost
from trainmaster.hosts.trees import put_tree
asyncio.run(put_tree(LocalHost("local", Path("/")), Path(sys.argv[1]), sys.argv[2]))
"""


class CuttableHost(LocalHost):
    """Kills the receiving side once it has been sent so many bytes."""

    def __init__(self, cut_after_bytes: int | None = None) -> None:
        super().__init__("box", Path("/"))
        self._left = cut_after_bytes

    @asynccontextmanager
    async def stream(self, command: Sequence[str], *, folder: str) -> AsyncIterator[Stream]:
        noted = "import os;open(3,'w').write(str(os.getpid()));"
        read, write = os.pipe()
        shell = ["sh", "-c", f'exec "$0" "$@" 3>/proc/{os.getpid()}/fd/{write}']
        told = [command[0], "-c", noted + command[2], *command[3:]]
        async with super().stream([*shell, *told], folder=folder) as stream:
            try:
                yield _Cutting(stream, self, read)
            finally:
                os.close(read)
                os.close(write)

    def spend(self, size: int) -> bool:
        """True when the allowance is used up by these bytes."""
        if self._left is None:
            return False
        self._left -= size
        return self._left <= 0


class _Cutting:
    def __init__(self, stream: Stream, host: CuttableHost, told_pid: int) -> None:
        self._stream, self._host, self._told_pid = stream, host, told_pid

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), 10_000):
            piece = data[start : start + 10_000]
            await self._stream.write(piece)
            if self._host.spend(len(piece)):
                pid = int(await asyncio.to_thread(os.read, self._told_pid, 20))
                os.kill(pid, signal.SIGKILL)
                self._host.__init__()  # type: ignore[misc]

    async def finish(self) -> None:
        await self._stream.finish()

    async def read(self, limit: int) -> bytes:
        return await self._stream.read(limit)

    async def end(self) -> tuple[int, str]:
        return await self._stream.end()


def put(local: Any, destination: Path, host: LocalHost | None = None, **options: Any) -> Sent:
    chosen = host or LocalHost("local", Path("/"))
    return run_async(lambda: put_tree(chosen, local, str(destination), **options))


def refused(local: Any, destination: Path, **options: Any) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as caught:
        put(local, destination, **options)
    return caught.value


def described(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Content, time of change and mode of each file by name."""
    return {
        path.relative_to(folder).as_posix(): (
            path.read_bytes(),
            path.lstat().st_mtime_ns,
            stat.S_IMODE(path.lstat().st_mode),
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


def make_tree(folder: Path, seed: int, files: int = 20, largest_bytes: int = 200_000) -> Path:
    chosen = random.Random(seed)
    print(f"tree of seed {seed}")
    for number in range(files):
        path = folder / f"part {number % 3}" / f"ünï-{number}\n.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chosen.randbytes(chosen.randrange(largest_bytes)))
        path.chmod(chosen.choice([0o644, 0o755, 0o600]))
        os.utime(path, ns=(0, chosen.randrange(10**18, 2 * 10**18)))
    (folder / "empty").touch()
    return folder


def test_a_tree_arrives_exactly_with_its_times_and_modes(tmp_path: Path) -> None:
    local = make_tree(tmp_path / "local", 1)
    seen: list[TreeProgress] = []
    sent = put(local, tmp_path / "there/deep/tree", on_progress=seen.append)
    assert described(tmp_path / "there/deep/tree") == described(local)
    assert (sent.kept, sent.sent_files) == (False, 21)
    assert seen[-1].done_bytes == seen[-1].total_bytes == sent.sent_bytes
    assert os.listdir(tmp_path / "there/deep") == ["tree"]


def test_what_is_unchanged_is_not_sent_and_what_is_stale_goes(tmp_path: Path) -> None:
    local, there = make_tree(tmp_path / "local", 2), tmp_path / "there"
    put(local, there)
    changed = local / "part 0" / "ünï-0\n.txt"
    changed.write_bytes(b"changed")
    shutil.rmtree(local / "part 2")
    (there / "stale/deeper").mkdir(parents=True)
    (there / "stale/deeper/file").touch()
    (there / "empty").chmod(0o600)
    sent = put(local, there)
    assert (sent.sent_bytes, sent.sent_files) == (len(b"changed"), 1)
    assert described(there) == described(local)
    assert not (there / "part 2").exists() and not (there / "stale").exists()
    assert put(local, there).sent_files == 0


def test_files_given_as_bytes_are_known_by_their_digest(tmp_path: Path) -> None:
    files = {"train.sh": b"#!/bin/sh\n", "a/b.py": b"pass\n", "empty": b""}
    executable = frozenset({"train.sh"})
    assert put(files, tmp_path / "there", executable=executable).sent_files == 3
    (tmp_path / "there/a/b.py").write_bytes(b"fail\n")
    os.utime(tmp_path / "there/train.sh")
    assert put(files, tmp_path / "there", executable=executable).sent_files == 1
    found = {name: content for name, (content, _, _) in described(tmp_path / "there").items()}
    assert found == files
    assert os.access(tmp_path / "there/train.sh", os.X_OK)
    assert not os.access(tmp_path / "there/a/b.py", os.X_OK)


def test_a_whole_tree_that_is_there_is_kept(tmp_path: Path) -> None:
    local, there = make_tree(tmp_path / "local", 3), tmp_path / "there"
    assert not put(local, there, whole=True).kept
    assert described(there) == described(local)
    (there / "own").touch()
    assert put({"other": b""}, there, whole=True) == Sent(True, 0, 0)
    assert (there / "own").exists()
    assert sorted(os.listdir(tmp_path)) == ["local", "there"]


def test_a_whole_tree_is_not_there_before_its_last_byte(tmp_path: Path) -> None:
    local, there = make_tree(tmp_path / "local", 4), tmp_path / "there"
    with pytest.raises(TrainmasterError, match="ended too early"):
        put(local, there, CuttableHost(1_000_000), whole=True)
    assert not there.exists()
    sent = put(local, there, whole=True)
    assert sent.sent_bytes < sum(len(data) for data, _, _ in described(local).values())
    assert described(there) == described(local)
    assert sorted(os.listdir(tmp_path)) == ["local", "there"]


def test_the_marker_comes_last_and_goes_before_anything_changes(tmp_path: Path) -> None:
    local, there = make_tree(tmp_path / "local", 5), tmp_path / "there"
    with pytest.raises(TrainmasterError):
        put(local, there, CuttableHost(1_000_000), mark=True)
    assert there.exists() and not (there / ".complete").exists()
    put(local, there, mark=True)
    listed = json.loads((there / ".complete").read_bytes())["files"]
    assert {name: (size, time_ns) for name, size, time_ns in listed} == {
        name: (len(data), time_ns) for name, (data, time_ns, _) in described(local).items()
    }
    (local / "new").write_bytes(b"x" * 3_000_000)
    with pytest.raises(TrainmasterError):
        put(local, there, CuttableHost(1_000_000), mark=True)
    assert not (there / ".complete").exists()
    put(local, there, mark=True)
    (there / ".complete").unlink()
    assert described(there) == described(local)


def test_it_goes_on_whenever_the_receiving_side_is_killed(tmp_path: Path) -> None:
    local, there = make_tree(tmp_path / "local", 6, largest_bytes=2_000_000), tmp_path / "there"
    total = sum(len(data) for data, _, _ in described(local).values())
    seed = random.randrange(10**6)
    print(f"cuts of seed {seed}")
    chosen, kills, sent_bytes = random.Random(seed), 0, 0
    for _ in range(8):
        try:
            put(local, there, CuttableHost(chosen.randrange(40_000, total // 2)))
            break
        except TrainmasterError as error:
            assert (error.code, error.retryable) == ("LINK_LOST", True)
            kills += 1
    sent_bytes += put(local, there).sent_bytes
    assert kills >= 2
    assert sent_bytes < total
    assert described(there) == described(local)
    assert sorted(os.listdir(tmp_path)) == ["local", "there"]


def test_it_goes_on_whenever_the_sender_is_killed(tmp_path: Path) -> None:
    local, there = tmp_path / "local", tmp_path / "there"
    local.mkdir()
    (local / "large").write_bytes(random.Random(7).randbytes(64 << 20))
    seed = random.randrange(10**6)
    print(f"kills of seed {seed}")
    chosen, kills = random.Random(seed), 0
    for _ in range(5):
        sender = subprocess.Popen(
            [sys.executable, "-c", _SENDER, str(local), str(there)],
            env={**os.environ, "PYTHONPATH": f"{REPOSITORY / 'server'}:{REPOSITORY}"},
        )
        wanted = arrived(tmp_path) + chosen.randrange(1 << 20, 16 << 20)
        while sender.poll() is None and arrived(tmp_path) < wanted:
            time.sleep(0.001)
        sender.kill()
        kills += sender.wait() == -signal.SIGKILL
    assert kills >= 3
    sent = put(local, there)
    assert sent.sent_bytes < 64 << 20
    assert described(there) == described(local)


def arrived(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob(".there.receiving/*.part"))


def test_a_damaged_part_is_sent_anew(tmp_path: Path) -> None:
    local, there = tmp_path / "local", tmp_path / "there"
    local.mkdir()
    (local / "large").write_bytes(random.Random(8).randbytes(8 << 20))
    with pytest.raises(TrainmasterError):
        put(local, there, CuttableHost(4 << 20))
    (part,) = tmp_path.glob(".there.receiving/*.part")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(bytes(data))
    assert put(local, there).sent_bytes == 8 << 20
    assert described(there) == described(local)


@pytest.mark.parametrize(
    "name",
    ["../out", "/etc/out", "a/../../out", "", ".", "a//b", "a/", "nul\0", "x" * 256],
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    error = refused({name: b"bad", "good": b""}, tmp_path / "inner/there")
    assert error.code == "UNSAFE_NAME" and error.fix
    assert not (tmp_path / "inner").exists()


@pytest.mark.parametrize("files", [{"a": b"", "a/b": b""}, {".complete": b""}])
def test_names_that_stand_for_two_things_are_refused(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    assert refused(files, tmp_path / "there", mark=True).code == "UNSAFE_NAME"


@pytest.mark.parametrize("destination", ["relative", "/tmp/../etc/x", "/"])
def test_a_destination_that_is_no_plain_path_is_refused(destination: str) -> None:
    host = LocalHost("local", Path("/"))
    with pytest.raises(TrainmasterError) as caught:
        run_async(lambda: put_tree(host, {"a": b""}, destination))
    assert caught.value.code == "UNSAFE_NAME"


def test_links_over_there_are_replaced_and_never_followed(tmp_path: Path) -> None:
    outside, there = tmp_path / "outside", tmp_path / "there"
    outside.mkdir()
    (outside / "file").write_bytes(b"kept")
    there.mkdir()
    for name in ("folder", "stale", "file", "broken"):
        (there / name).symlink_to(outside if name != "broken" else tmp_path / "nowhere")
    (there / "file").unlink()
    (there / "file").symlink_to(outside / "file")
    put({"folder/file": b"new", "file": b"new", "broken": b"new"}, there)
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_bytes() == b"kept"
    assert sorted(path.name for path in there.iterdir()) == ["broken", "file", "folder"]
    assert not any(path.is_symlink() for path in there.rglob("*"))
    linked = tmp_path / "linked"
    linked.symlink_to(outside)
    assert refused({"file": b"new"}, linked).code == "UNSAFE_NAME"
    assert (outside / "file").read_bytes() == b"kept"


def test_a_folder_in_a_files_place_gives_way_and_the_other_way_round(tmp_path: Path) -> None:
    there = tmp_path / "there"
    put({"a/b": b"1", "c": b"2"}, there)
    put({"a": b"3", "c/d": b"4"}, there)
    assert {name: data for name, (data, _, _) in described(there).items()} == {
        "a": b"3",
        "c/d": b"4",
    }


def test_links_here_are_not_sent(tmp_path: Path) -> None:
    local = make_tree(tmp_path / "local", 9, files=2)
    (local / "link").symlink_to("/etc/hostname")
    put(local, tmp_path / "there")
    assert not (tmp_path / "there/link").exists()


def test_thousands_of_small_files_arrive(tmp_path: Path) -> None:
    files = {f"{number % 50}/{number}": b"%d" % number for number in range(5000)}
    assert put(files, tmp_path / "there").sent_files == 5000
    found = {name: data for name, (data, _, _) in described(tmp_path / "there").items()}
    assert found == files


def test_a_file_that_changed_since_it_was_listed_is_told(tmp_path: Path) -> None:
    local = make_tree(tmp_path / "local", 10)
    listed: list[TreeFile] = files_of_folder(local)
    with (local / "empty").open("ab") as file:
        file.write(b"grown")
    error = refused(listed, tmp_path / "there", mark=True)
    assert error.code == "DATA_CHANGED" and str(local / "empty") in error.message
    assert not (tmp_path / "there/.complete").exists()
    (local / "empty").unlink()
    assert refused(listed, tmp_path / "there").code == "DATA_CHANGED"


def test_two_senders_at_once_take_turns(tmp_path: Path) -> None:
    local, there = tmp_path / "local", tmp_path / "there"
    local.mkdir()
    (local / "large").write_bytes(random.Random(11).randbytes(32 << 20))
    host = LocalHost("local", Path("/"))

    async def both() -> list[Sent]:
        return await asyncio.gather(*(put_tree(host, local, str(there)) for _ in range(2)))

    sent = run_async(both)
    assert sorted(item.sent_bytes for item in sent) == [0, 32 << 20]
    assert described(there) == described(local)


def test_a_sender_that_does_not_come_on_is_not_waited_for_and_is_named(tmp_path: Path) -> None:
    there, local = tmp_path / "there", LocalHost("local", Path("/"))
    receive = find_assets().runtime / "box" / "receive.py"
    header = {"destination": str(there), "whole": False, "mark": False}
    data = json.dumps({**header, "files": [["large", 3, None, 0o644, None]]}).encode()
    with subprocess.Popen(
        [sys.executable, str(receive)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as silent:
        assert silent.stdin is not None and silent.stdout is not None
        silent.stdin.write(struct.pack(">cI", b"H", len(data)) + data)
        silent.stdin.flush()
        assert "need" in json.loads(silent.stdout.readline())
        seen: list[TreeProgress] = []
        error = refused({"a": b"1"}, there, patience_s=0.5, on_progress=seen.append)
        assert (error.code, error.retryable) == ("PLACE_BUSY", True)
        assert f"process {silent.pid}" in error.message and "0 s" in error.message
        assert seen[0].waiting
        silent.stdin.close()
    assert run_async(lambda: put_tree(local, {"a": b"1"}, str(there))).sent_files == 1


def test_a_full_disk_is_told_and_gone_on_with_once_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a small disk can't be mounted here")
    try:
        files = {"small": b"1", "large": random.Random(12).randbytes(24 << 20)}
        error = refused(files, disk / "there")
        assert (error.code, error.retryable) == ("DISK_FULL", True)
        told = (f"room left for {disk}/there", "24.0 MiB", f"{disk}/.there.receiving")
        assert [words for words in told if words not in error.message] == []
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert put(files, disk / "there").sent_bytes < 24 << 20
        little = {"little": random.Random(13).randbytes(8 << 20)}
        subprocess.run(["mount", "-o", "remount,size=26m", str(disk)], check=True)
        assert "MiB free" in refused(little, disk / "run", whole=True).message
        assert os.listdir(disk) == ["there"]
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert refused({"more": b"1"}, disk / "other").code == "ROOT_NOT_WRITABLE"
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_destination_below_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refused({"a": b""}, tmp_path / "file/there").code == "ROOT_NOT_WRITABLE"
