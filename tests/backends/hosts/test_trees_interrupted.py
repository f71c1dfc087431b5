"""Trees whose way is cut: by kills, damage, other senders, and full disks."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.backends.file_trees import CuttableHost, described, make_tree, put, refused
from support.runs.running_run import bytes_below, run_async, wait_until

from trainmaster.backends.hosts import LocalHost
from trainmaster.backends.hosts.trees import Sent, TreeProgress, put_tree
from trainmaster.errors.errors import TrainmasterError
from trainmaster.home.assets import find_assets

REPOSITORY = Path(__file__).parents[3]
# Stands still after so many bytes, until it is killed: else it might be done before that.
_SENDER = """
import asyncio, sys
from contextlib import asynccontextmanager
from pathlib import Path
from trainmaster.backends.hosts import LocalHost
from trainmaster.backends.hosts.trees import put_tree

class Halting(LocalHost):
    @asynccontextmanager
    async def stream(self, command, *, folder):
        async with super().stream(command, folder=folder) as stream:
            write, left = stream.write, int(sys.argv[3])
            async def write_some(data):
                nonlocal left
                await write(data[:left])
                left -= len(data)
                if left < 0:
                    await asyncio.Event().wait()
            stream.write = write_some
            yield stream

asyncio.run(put_tree(Halting("local", Path("/")), Path(sys.argv[1]), sys.argv[2]))
"""
_AHEAD_BYTES = 4 << 20  # of what is waited for: a frame that is not whole yet is not there


def test_it_resumes_whenever_the_receiving_side_is_killed(tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_it_resumes_whenever_the_sender_is_killed(tmp_path: Path) -> None:
    local, there = tmp_path / "local", tmp_path / "there"
    local.mkdir()
    (local / "large").write_bytes(random.Random(7).randbytes(64 << 20))
    seed = random.randrange(10**6)
    print(f"kills of seed {seed}")
    chosen, kills = random.Random(seed), 0
    for _ in range(5):
        more = chosen.randrange(1 << 20, 16 << 20)
        wanted = arrived(tmp_path) + more
        sender = subprocess.Popen(
            [sys.executable, "-c", _SENDER, str(local), str(there), str(more + _AHEAD_BYTES)],
            env={**os.environ, "PYTHONPATH": f"{REPOSITORY / 'server'}:{REPOSITORY}"},
        )
        while sender.poll() is None and arrived(tmp_path) < wanted:
            time.sleep(0.001)
        sender.kill()
        kills += sender.wait() == -signal.SIGKILL
    assert kills >= 3
    sent = put(local, there)
    assert sent.sent_bytes < 64 << 20
    assert described(there) == described(local)


def arrived(folder: Path) -> int:
    return bytes_below(folder / ".there.receiving")


def test_a_damaged_part_is_sent_again(tmp_path: Path) -> None:
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
    receive = find_assets().runtime / "host" / "answer" / "receive.py"
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
        assert (error.code, error.retryable) == ("UPLOAD_LOCKED", True)
        assert f"process {silent.pid}" in error.message and "0 s" in error.message
        assert seen[0].waiting
        silent.stdin.close()
    assert run_async(lambda: put_tree(local, {"a": b"1"}, str(there))).sent_files == 1


def test_a_full_disk_is_reported_and_the_upload_resumes_once_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("to mount a small disk takes root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)], check=True)
    try:
        files = {"small": b"1", "large": random.Random(12).randbytes(24 << 20)}
        error = refused(files, disk / "there")
        assert (error.code, error.retryable) == ("DISK_FULL", True)
        expected = (f"room left for {disk}/there", "24.0 MiB", f"{disk}/.there.receiving")
        assert [words for words in expected if words not in error.message] == []
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert put(files, disk / "there").sent_bytes < 24 << 20
        little = {"little": random.Random(13).randbytes(8 << 20)}
        subprocess.run(["mount", "-o", "remount,size=26m", str(disk)], check=True)
        assert "MiB free" in refused(little, disk / "run", whole=True).message
        assert os.listdir(disk) == ["there"]
        read_only = ["mount", "-o", "remount,ro", str(disk)]
        wait_until(lambda: subprocess.run(read_only).returncode == 0, "nobody who writes there")
        assert refused({"more": b"1"}, disk / "other").code == "ROOT_NOT_WRITABLE"
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
