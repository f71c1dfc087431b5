"""A full disk, and mirrors at their quota."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.store.mirror import Mirror, MirrorWriter
from trainmaster.store.refusals import MIRROR_QUOTA, UnusableDataError

_ON_A_FULL_DISK = """
import os, sqlite3, subprocess, sys
from pathlib import Path
from trainmaster.store.reserve import keep_reserve, leaves_margin
from trainmaster.sync.workspace import Workspace
from trainmaster.words.paths import Home

home = Home(Path(sys.argv[1]) / "home")
home.root.mkdir(mode=0o700)
workspace = Workspace(home)
workspace.metrics.count_points()
keep_reserve(home)
assert home.reserve.stat().st_size > 0
try:
    with open(Path(sys.argv[1]) / "filler", "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
except OSError:
    pass
workspace.close()
assert not leaves_margin(home.root, 1)
environment = {**os.environ, "TRAINMASTER_HOME": str(home.root)}
words = [sys.executable, "-P", "-m", "trainmaster", "tick", "--json"]
done = subprocess.run(words, env=environment, capture_output=True, text=True)
assert done.returncode == 0, done.stdout + done.stderr
assert done.stdout == '{"runs":[]}\\n', done.stdout
assert not home.reserve.exists()
os.unlink(Path(sys.argv[1]) / "filler")
subprocess.run(words, env=environment, check=True)
assert home.reserve.exists()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_tick_works_on_a_full_disk_and_keeps_the_reserve_afterwards(tmp_path: Path) -> None:
    script = tmp_path / "full.py"
    script.write_text(_ON_A_FULL_DISK)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=64m,mode=0755 tmpfs "$1" && exec "$2" "$3" "$1"'
    words = ["unshare", "--mount", "sh", "-c", mount, "sh", str(disk), sys.executable, str(script)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
