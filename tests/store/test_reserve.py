"""A full disk, and mirrors at their quota."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.attack.small_disk import mounts_disk
from support.host.scripted_processes import CONFIG
from support.session.tiers import at_length

from trainmaster.home.paths import Home
from trainmaster.store.mirror import Mirror
from trainmaster.store.mirror_writer import MirrorWriter
from trainmaster.store.quota import ALWAYS_ALLOWED_BYTES, total_quota, used
from trainmaster.store.refusals import MIRROR_QUOTA, UnusableDataError
from trainmaster.sync.workspace import open_workspace

pytestmark = pytest.mark.attack

_ON_A_FULL_DISK = """
import json, os, sqlite3, subprocess, sys, time
from pathlib import Path
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.store.control.instances import RentedInstance, RentState
from trainmaster.store.host_record import HostRecord
from trainmaster.store.disk_space import why_unwritable
from trainmaster.store.reserve import keep_reserve
from trainmaster.store.run import Run
from trainmaster.sync.workspace import Workspace
from trainmaster.home.paths import Home

home = Home(Path(sys.argv[1]) / "home")
home.root.mkdir(mode=0o700)
workspace = Workspace(home)
workspace.metrics.count_points()
workspace.control.put_host(HostRecord("gpu1", "127.0.0.1", port=1), 1.0)
config = {**json.loads(sys.argv[2]), "run_id": "small-abc234"}
run = Run("small-abc234", "small", 1.0, "gpu1", "", config, {}, {})
workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "process", "/x", None)
workspace.control.set_placed(run, 2.0)
rented = ("tm-0a1b2c-aaaaaa", "gpu2", "runpod", RentState.READY, "7", 1.0, 4e9, 1.0, 9.0)
workspace.control.instances.add(RentedInstance(*rented, created_t=1.0, ready_t=1.0))
keep_reserve(home)
reserved_bytes = home.reserve.stat().st_size
assert reserved_bytes > 0
workspace.close()
for _ in range(5):  # what a quota counted before it is written may count for less afterwards
    with open(Path(sys.argv[1]) / "filler", "ab", buffering=0) as filler:
        try:
            while True:
                filler.write(os.urandom(4096))
        except OSError:
            os.fsync(filler.fileno())
assert why_unwritable(home.root)[0] == "DISK_FULL"
environment = {**os.environ, "TRAINMASTER_HOME": str(home.root)}
program = [sys.executable, "-P", "-m", "trainmaster"]
words = sys.argv[3:]
started = subprocess.Popen([*program, *words], env=environment)
def is_given_up():
    return not home.reserve.exists() or home.reserve.stat().st_size < reserved_bytes

deadline = time.monotonic() + 60.0
while not is_given_up() and started.poll() in (None, 0):
    assert time.monotonic() < deadline
    time.sleep(0.05)
workspace = Workspace(home)

def is_done():
    if words[0] == "stop":
        return workspace.control.desired(run.run_id)[0].state is DesiredState.STOPPED
    if words[0] == "release":
        return workspace.control.instances.find(words[1]).release is not None
    return started.poll() in (0, 1)  # 1: the instance's provider has no key

while not is_done() and started.poll() in (None, 0):
    assert time.monotonic() < deadline
    time.sleep(0.05)
assert is_done() and is_given_up()
started.kill()  # it waits for the host, or the instance, which never answers
started.wait()
workspace.close()
if words[0] != "tick":
    sys.exit()
os.unlink(Path(sys.argv[1]) / "filler")
again = subprocess.run([*program, "tick"], env=environment)
assert again.returncode in (0, 1)  # 1: the instance's provider has no key
assert home.reserve.exists()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
@pytest.mark.parametrize(
    ("words", "by_quota"),
    [
        (["stop", "small-abc234"], False),
        *at_length(
            (["tick"], False),
            (["release", "gpu2", "--force", "--yes"], False),
            (["tick"], True),
            (["stop", "small-abc234"], True),
            (["release", "gpu2", "--force", "--yes"], True),
        ),
    ],
)
def test_what_ends_things_works_on_a_full_disk_and_tick_keeps_the_reserve_afterwards(
    tmp_path: Path, words: list[str], by_quota: bool
) -> None:
    script = tmp_path / "full.py"
    script.write_text(_ON_A_FULL_DISK)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'{mounts_disk(64, by_quota=by_quota)} && shift && exec "$@"'
    command = [sys.executable, str(script), str(disk), json.dumps(CONFIG), *words]
    # With process numbers of its own: what a command left running ends with the test.
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    mounted = [*alone, "sh", "-c", mount, "sh", str(disk), *command]
    done = subprocess.run(mounted, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_home_has_a_reserve_from_its_first_opening_and_keeps_it_where_nothing_is_full(
    home: Path,
) -> None:
    """The test's disk has room. What uses it up is tried in tests/attack/test_full_homes.py."""
    environment = {"TRAINMASTER_HOME": str(home)}
    for _ in range(2):
        with open_workspace(environment) as workspace:
            opened = workspace.home
        assert opened.reserve.stat().st_size == 4 << 20
        assert opened.reserve.stat().st_blocks * 512 >= 4 << 20  # no hole
        assert len(list(opened.reserved_files.iterdir())) == 16


def test_a_mirror_at_its_quota_takes_no_more_and_loses_nothing(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path).of("small-abc234", 1)
    writer = MirrorWriter(mirror, lambda: None, 1000)
    assert writer.append("supervisor.jsonl", b"a" * 900, final=True) == 900
    with pytest.raises(UnusableDataError) as caught:
        writer.append("supervisor.jsonl", b"b" * 200, final=True)
    assert caught.value.code == MIRROR_QUOTA
    assert mirror.size("supervisor.jsonl") == 900
    again = MirrorWriter(mirror, lambda: None, 1000)  # what is there counts
    with pytest.raises(UnusableDataError):
        again.append("attempts/1/train.log", b"b" * 200, final=True)


def test_all_mirrors_together_stop_at_the_total_whichever_process_writes(home: Path) -> None:
    home.mkdir()
    limit, piece = 200 << 20, bytes(1 << 20)
    Home(home).settings.write_text(f"mirror: {{total_gib: {limit / (1 << 30)}}}\n")
    mirrors = [Mirror(home / "mirror").of(f"small-abc23{number}", 1) for number in range(3)]
    for mirror in mirrors:
        mirror.append("supervisor.jsonl", b"")
        os.truncate(mirror.path("supervisor.jsonl"), ALWAYS_ALLOWED_BYTES)
    writers = [
        MirrorWriter(mirror, lambda: None, total=total_quota(Home(home))) for mirror in mirrors
    ]
    refused = set()
    for turn in range(60):
        try:
            writers[turn % 3].append("supervisor.jsonl", piece, final=True)
        except UnusableDataError as error:
            assert error.code == MIRROR_QUOTA
            refused.add(turn % 3)
    assert refused == {0, 1, 2}
    # A share of each other process may be forgotten when the disk is measured.
    assert limit - (4 << 20) < used(home / "mirror")[0] <= limit + 2 * (4 << 20)
    small = MirrorWriter(
        Mirror(home / "mirror").of("other-abc234", 1), lambda: None, total=total_quota(Home(home))
    )
    assert small.append("supervisor.jsonl", piece, final=True) == len(piece)
