"""Uploads of data to a host over SSH, by a separate process that may be killed at any time."""

from __future__ import annotations

import fcntl
import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.backends.ssh_hosts import CuttingProxy, Sshd
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    bytes_below,
    kill,
    run_async,
    small_spec,
    wait_until,
)

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.corpus import Source, fingerprint, list_files
from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.host.prepare.data_card import DIGESTS
from trainer_runtime.host.prepare.shards import is_whole, prepare
from trainmaster.answers.status import StatusAnswer, TransferState
from trainmaster.cli.progress_bar import describe
from trainmaster.cli.views.blocks import view
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.transfer import due_transfers, transfer

pytestmark = pytest.mark.slow

LARGE_BYTES = 96 << 20


def spec_of(folder: Path, corpus: Path | str, **changes: str) -> str:
    data = f"{{sources: [{{name: main, path: {corpus}}}], seq_len: 32, prepare: auto}}"
    python = f"{{python: {sys.executable}}}"
    fields = {"data": data, "host": "box", "environment": python, "steps": "20", **changes}
    return small_spec(folder, **fields)


def large_corpus(folder: Path, size_bytes: int = LARGE_BYTES) -> Path:
    folder.mkdir()
    line = random.Random(3).randbytes(500).hex() + "\n"
    for number in range(4):
        (folder / f"{number}.txt").write_text(line * (size_bytes // 4 // len(line)))
    (folder / "small").mkdir()
    for number in range(200):
        (folder / "small" / f"ü {number}.txt").write_text(f"{number} small\n")
    return folder


def config_of(workspace: Workspace, run: str) -> dict[str, Any]:
    return dict(workspace.control.run(run).document)


def entry_of(workspace: Workspace, run: str) -> Path:
    data = config_of(workspace, run)["data"]
    return Path(data["cache_dir"], "data", data["fingerprint"])


def arrived_bytes(workspace: Workspace, run: str) -> int:
    data = config_of(workspace, run)["data"]
    return bytes_below(Path(data["cache_dir"], "sources"))


def transferring(run: str) -> list[int]:
    """The pids of the processes that transfer for a run."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"transfer" in words and run.encode() in words:
            found.append(int(pid))
    return found


def let_it_end(workspace: Workspace, run: str) -> None:
    """Wait until no process transfers for a run, or holds its lock. Without other readers the
    transferring process learns only every half minute that the run has ended."""

    def has_ended() -> bool:
        lock = try_lock(workspace.home.transfer_lock(run))
        if lock is not None:
            os.close(lock)
        return lock is not None

    wait_until(has_ended, "the transfer's end", LONGEST_S)


def kill_transfers(workspace: Workspace, run: str) -> int:
    """Kill all processes that transfer for a run; how many."""
    pids = transferring(run)
    for pid in pids:
        kill(pid)
    let_it_end(workspace, run)
    return len(pids)


def local_shards(workspace: Workspace, run: str, tmp_path: Path) -> dict[str, bytes]:
    """What this machine would have cut from the operator's files."""
    data = config_of(workspace, run)["data"]
    sources = [
        {**source, "path": data["upload"]["sources"][source["name"]]} for source in data["sources"]
    ]
    local = {**data, "sources": sources, "cache_dir": str(tmp_path / "reference")}
    del local["upload"]
    return contents(prepare(RunConfig.parse({"data": local}), print))


def contents(folder: Path) -> dict[str, bytes]:
    """The shards, and what describes them; where they were not cut nobody digests the sources."""
    files = [path for path in folder.iterdir() if path.is_file() and path.name != DIGESTS]
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.long
def test_an_upload_that_is_killed_again_and_again_ends_in_the_same_shards(
    remote: CommandLine, workspace: Workspace, sshd: Sshd, tmp_path: Path
) -> None:
    seed = random.randrange(10**6)
    print(f"kills of seed {seed}")
    chosen, kills = random.Random(seed), 0
    corpus = large_corpus(tmp_path / "large")
    # Its way leads through this process: nothing gets on while this one is held up.
    with CuttingProxy((sshd.address, sshd.port)) as way:
        workspace.control.put_host(sshd.record("box", port=way.port), time.time())
        with held_up(sshd, corpus):
            run = remote("launch", spec_of(tmp_path, corpus))["run_id"]
        for number in range(5):
            wanted = arrived_bytes(workspace, run) + chosen.randrange(LARGE_BYTES // 8)
            wait_until(
                lambda wanted=wanted: (
                    arrived_bytes(workspace, run) >= wanted or is_whole(entry_of(workspace, run))
                ),
                "progress",
            )
            if is_whole(entry_of(workspace, run)):
                break
            if number % 2:
                kills += kill_transfers(workspace, run)
                remote("tick")
            else:
                sshd.drop_connections()
                kills += 1
        assert kills >= 2
        done = remote("wait", run, "--until", "completed", "--timeout", "240")
        assert done["event"] == "completed"
        assert contents(entry_of(workspace, run)) == local_shards(workspace, run, tmp_path)
        let_it_end(workspace, run)
        assert remote("status", run).get("transfer") is None


@pytest.mark.long
def test_shards_cut_here_are_those_that_the_box_cuts(
    remote: CommandLine, workspace: Workspace, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, large_corpus(tmp_path / "large", 2 << 20))
    here = spec.replace("prepare: auto", "prepare: here")
    run = remote("launch", here)["run_id"]
    assert remote("wait", run, "--until", "end", "--timeout", "240")["event"] == "completed"
    assert contents(entry_of(workspace, run)) == local_shards(workspace, run, tmp_path)
    cache = Path(config_of(workspace, run)["data"]["cache_dir"])
    assert not (cache / "sources").exists()
    again = remote("launch", spec)["run_id"]
    assert entry_of(workspace, again) == entry_of(workspace, run)
    assert workspace.control.run(again).plan["corpus"]["cached"]
    remote("wait", again, "--until", "running,end", "--timeout", "240")
    let_it_end(workspace, again)
    assert not (cache / "sources").exists()  # what is cached is not sent
    remote("stop", again)


def test_data_of_the_boxs_own_is_read_where_it_lies(
    remote: CommandLine, workspace: Workspace, sshd: Sshd, tmp_path: Path
) -> None:
    corpus = large_corpus(sshd.home / "its own", 1 << 20)
    run = remote("launch", spec_of(tmp_path, f"'host:{corpus}'"))["run_id"]
    wait_until(lambda: is_whole(entry_of(workspace, run)), "the shards", LONGEST_S)
    remote("stop", run)
    assert "upload" not in config_of(workspace, run)["data"]
    assert not (sshd.home / "trainmaster/cache/sources").exists()
    error = remote("launch", spec_of(tmp_path, "host:/nowhere"), code=1)["error"]
    assert (error["code"], error["field"]) == ("DATA_MISSING", "data.sources[0].path")


@pytest.mark.long
def test_files_that_change_before_they_are_sent_fail_the_run_and_say_so(
    remote: CommandLine, workspace: Workspace, sshd: Sshd, tmp_path: Path
) -> None:
    corpus = large_corpus(tmp_path / "large", 1 << 20)
    with held_up(sshd, corpus):
        run = remote("launch", spec_of(tmp_path, corpus))["run_id"]
        wait_until(lambda: transferring(run), "the transfer")
        kill_transfers(workspace, run)
    (corpus / "0.txt").write_text("other text\n" * 1000)
    assert not is_whole(entry_of(workspace, run))
    remote("tick")
    assert remote("wait", run, "--until", "end", "--timeout", "240")["event"] == "failed"
    status = remote("status", run)
    assert status["reason"].startswith("unusable") and "launch" in status["next_step"]
    assert "changed since the plan" in " ".join(status["evidence"])


@contextmanager
def held_up(sshd: Sshd, corpus: Path) -> Iterator[None]:
    """Inside, another sender is at the place where this corpus is to lie."""
    mark = fingerprint([Source("main", str(corpus), list_files(corpus))], "byte", 32)
    lock = sshd.home / f"trainmaster/cache/sources/.{mark}.receiving/lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


@pytest.mark.long  # test_model_upload, tests/host/prepare/test_uploads.py
def test_an_upload_waits_its_turn_is_shown_and_ends_with_a_stop(
    remote: CommandLine, workspace: Workspace, sshd: Sshd, tmp_path: Path
) -> None:
    corpus = large_corpus(tmp_path / "large", 1 << 20)

    def waiting_in_the_status() -> dict[str, Any] | None:
        """Once it has heard over there what there is to wait for."""
        progress: dict[str, Any] | None = remote("status", run).get("transfer")
        return progress if progress and progress["total_bytes"] else None

    with held_up(sshd, corpus):
        run = remote("launch", spec_of(tmp_path, corpus))["run_id"]
        assert len(wait_until(lambda: transferring(run), "the transfer")) == 1
        remote("tick")
        remote("tick")
        assert len(transferring(run)) == 1
        shown = wait_until(waiting_in_the_status, "it in the status")
        total_bytes = config_of(workspace, run)["data"]["upload"]["size_bytes"]
        assert shown == {
            "what": "upload",
            "done_bytes": 0,
            "total_bytes": total_bytes,
            "bytes_per_s": 0.0,
        }
        assert remote("stop", run)["state"] in ("stopping", "stopped")
        let_it_end(workspace, run)
        assert remote("wait", run, "--until", "end", "--timeout", "240")["event"] == "stopped"
        assert "transfer" not in remote("status", run)
        assert due_transfers(workspace, run) == []
    remote("resume", run)
    assert remote("wait", run, "--until", "end", "--timeout", "240")["event"] == "completed"


@pytest.mark.long
def test_an_upload_to_a_box_that_is_gone_is_shown_and_ends(
    remote: CommandLine, workspace: Workspace, sshd: Sshd, tmp_path: Path
) -> None:
    corpus = large_corpus(tmp_path / "large", 1 << 20)
    with held_up(sshd, corpus):
        run = remote("launch", spec_of(tmp_path, corpus))["run_id"]
        wait_until(lambda: transferring(run), "the transfer")
        kill_transfers(workspace, run)
        sshd.halt()
        assert run_async(lambda: transfer(workspace, run, patience_s=1.0)).done == []
        shown = remote("status", run)["transfer"]
        assert shown["what"] == "upload" and shown["error"].startswith("HOST_UNREACHABLE")
        assert transferring(run) == []  # a status starts none
        removed = remote("hosts", "remove", "box", "--force")
        assert removed["abandoned"] == [run] and "hosts add box" in removed["next_step"]
        assert due_transfers(workspace, run) == []
        status = remote("status", run)
        assert "not among the hosts" in status["unreachable"]
        assert "hosts add box" in status["next_step"]


def test_transfers_are_shown_in_the_status_and_while_waiting() -> None:
    state = TransferState(
        what="upload", done_bytes=1 << 20, total_bytes=4 << 20, bytes_per_s=1 << 19, error="X: y"
    )
    status = StatusAnswer(
        run_id="small-abc234",
        name="small",
        state="preparing",
        host="box",
        attempt=1,
        step=0,
        metrics={},
        findings=[],
        transfer=state,
        next_step="Wait.",
    )
    assert "Transfer: upload, 1 MiB of 4 MiB (25 %), 512 KiB/s" in view(status)
    assert "Transfer waits: X: y" in view(status)
    assert describe(status) == "preparing  upload 1 MiB of 4 MiB"


def test_a_cache_with_too_little_room_is_reported_before_anything_is_sent(
    remote: CommandLine, workspace: Workspace, sshd: Sshd, tmp_path: Path
) -> None:
    cache = sshd.home / "small"
    sshd.mount_small_disk(cache, 8)
    workspace.control.put_host(sshd.record("box", cache=str(cache)), time.time())
    spec = spec_of(tmp_path, large_corpus(tmp_path / "large", 32 << 20))
    error = remote("launch", spec, code=1)["error"]
    assert (error["code"], error["field"]) == ("DISK_TOO_SMALL", "host")
    assert str(cache) in error["message"]
    assert remote("runs")["runs"] == []
