"""Secrets and files between this machine and a host over SSH, over links that break."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.backends.ssh_hosts import Sshd
from support.runs.light_run import lasting, light_spec
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    bytes_below,
    holding,
    let_it_run,
    wait_until,
)

from trainer_runtime.core.files.manifest import verify

CUTS = int(os.environ.get("TRAINMASTER_FAULT_CUTS", "4"))
TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
MIB = 1 << 20
SITE = """\
import os, sys
if "train.py" in sys.orig_argv:
    print("the token is", os.environ.get("HF_TOKEN"), flush=True)
"""


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with Sshd() as box:
        yield box


@pytest.fixture
def remote(home: Path, sshd: Sshd) -> CommandLine:
    """`trainmaster` in a home that knows the host as `gpu1`, and may give it a secret."""
    command = CommandLine(home, "gpu1", sshd.home / "trainmaster")
    record = sshd.record()
    address = f"{record.user}@{record.address}:{record.port}"
    command("hosts", "add", "gpu1", address, "--key", str(record.key), "--root", record.root)
    (home / "settings.yaml").write_text("secrets: {allow: [HF_TOKEN]}")
    secrets = home / "secrets.env"
    secrets.touch(0o600)
    secrets.write_text(f"HF_TOKEN={TOKEN}\n")
    return command


def wait_for_bytes(process: subprocess.Popen[str], folder: Path) -> None:
    """Until a fetch has brought some, or has ended."""
    before = bytes_below(folder)
    wait_until(
        lambda: bytes_below(folder) > before or process.poll() is not None, "bytes come", LONGEST_S
    )


@pytest.mark.long
def test_a_secret_reaches_the_trainer_and_stays_in_two_files_and_the_boxs_log(
    remote: CommandLine, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    changes = {"env": f"{{PYTHONPATH: {site}}}", "secrets": "[HF_TOKEN]", "steps": "4000"}
    spec = light_spec(tmp_path, "--every", "200", *lasting(), host="gpu1", **changes)
    run = remote("launch", spec)["run_id"]
    remote("wait", run, "--until", "step:20,end", "--timeout", str(LONGEST_S))
    folder = remote.folder(run)
    assert stat.S_IMODE(folder.secrets.stat().st_mode) == 0o600
    assert holding(folder.root, TOKEN.encode()) == [".secrets.json", "attempts/1/train.log"]
    assert holding(remote.home, TOKEN.encode()) == ["secrets.env", f"secrets/{run}.json"]
    assert f"the token is {'*' * len(TOKEN)}" in remote("logs", run, "--limit", "1000")["lines"]
    remote("stop", run)
    remote("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    wait_until(lambda: not folder.secrets.exists(), "the host's copy is removed")
    assert holding(remote.root, TOKEN.encode()) == [f"runs/{run}/attempts/1/train.log"]


@pytest.mark.long
def test_checkpoints_come_here_by_themselves_and_a_fetch_survives_cuts_and_kills(
    remote: CommandLine, tmp_path: Path, sshd: Sshd
) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    chosen = random.Random(seed)
    spec = light_spec(tmp_path, host="gpu1", checkpoint="{mirror: operator}")
    run = remote("launch", spec)["run_id"]
    remote("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))

    def mirrored() -> bool:
        return bool(remote("status", run)["checkpoint"].get("mirrored_step") == 60)

    wait_until(mirrored, "the last checkpoint is here", LONGEST_S)
    here = remote.home / "mirror" / run / "p1" / "checkpoints"
    assert verify(here / "step-00000060") == []

    box, there = remote.folder(run).root / "final", tmp_path / "fetched"
    for number in range(2):
        (box / f"part-{number}.bin").write_bytes(chosen.randbytes(160 * MIB))
    for number in range(CUTS):
        process = remote.start("fetch", run, "final", str(there), "--json")
        wait_for_bytes(process, there)
        let_it_run(chosen.uniform(0.0, 0.4))
        if number < CUTS // 2:
            process.send_signal(signal.SIGKILL)
        else:
            sshd.drop_connections()
        output, errors = process.communicate(timeout=LONGEST_S)
        print(number, process.returncode, output[-200:], errors[-200:])
    answer = remote("fetch", run, "final", str(there))
    assert answer["files"] == len(list(box.iterdir()))
    for path in box.iterdir():
        assert (there / path.name).read_bytes() == path.read_bytes()
    assert list(there.rglob("*.part")) == []
