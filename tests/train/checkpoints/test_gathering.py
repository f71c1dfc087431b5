"""Checkpoints that ranks of several machines write: their own disks, or one that they share."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import LONGEST_S
from torch import distributed

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.manifest import verify
from trainer_runtime.core.files.parts import Awaited, Part, arrived
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.attempt.events import EventLog
from trainer_runtime.train.checkpoints.framework_checkpointer import FrameworkCheckpointer
from trainer_runtime.train.distributed.ranks import Ranks

CONFIG: dict[str, Any] = {
    "config_version": 1,
    "framework": "hf",
    "data": {"sources": [], "tokenizer": "byte", "seq_len": 32, "cache_dir": "/nowhere"},
    "batch": {"tokens": 256, "micro_batch": 4, "accumulation": 2},
    "optimizer": {"name": "adamw", "lr": 0.003, "weight_decay": 0.1, "grad_clip": 1.0},
    "schedule": {"kind": "cosine"},
    "steps": 60,
    "checkpoint": {"every": 20, "keep_latest": 2, "keep_best": 0},
    "compute": {"device": "cpu", "processes": 2, "nodes": 2, "strategy": "zero2"},
}


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The store of a launcher of two machines with one rank each."""
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    yield
    del store


def of_both(work: Callable[[Ranks], Any]) -> list[Any]:
    """What both ranks return, which run at once."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, (Ranks(0, 2), Ranks(1, 2))))


def test_machines_with_disks_of_their_own_send_small_files_by_the_launcher(
    launcher: None, tmp_path: Path
) -> None:
    def work(ranks: Ranks) -> list[int]:
        folder = tmp_path / str(ranks.rank) / "written"
        folder.mkdir(parents=True)
        (folder / f"rng_state_{ranks.rank}.pth").write_bytes(bytes([ranks.rank]))
        (folder / "same").write_text(str(ranks.rank))
        apart = ranks.machines_apart(folder.parent)
        ranks.await_files(folder, apart)
        ranks.gather_files(folder, apart)
        return apart

    assert of_both(work) == [[1], [1]]
    here = tmp_path / "0/written"
    assert {path.name for path in here.iterdir()} == {"rng_state_0.pth", "rng_state_1.pth", "same"}
    assert (here / "same").read_text() == "0"
    assert not (tmp_path / "1/written").exists()
    assert [path.name for path in (tmp_path / "0").iterdir()] == ["written"]


def test_what_one_machine_refuses_every_rank_refuses(launcher: None) -> None:
    acted = []

    def refuse_on_the_second(ranks: Ranks) -> None:
        acted.append(ranks.machine)
        if ranks.machine:
            raise ConfigError("no room on the second")

    def work(ranks: Ranks) -> str:
        with pytest.raises(ConfigError) as refused:
            ranks.on_each_machine("converted", lambda: refuse_on_the_second(ranks))
        return str(refused.value)

    assert of_both(work) == ["no room on the second"] * 2
    assert sorted(acted) == [0, 1]


def test_on_a_disk_that_machines_share_everything_is_there(launcher: None, tmp_path: Path) -> None:
    folder = tmp_path / "written"
    folder.mkdir()
    written = threading.Barrier(2)

    def work(ranks: Ranks) -> list[int]:
        apart = ranks.machines_apart(tmp_path)
        (folder / f"shard-{ranks.rank}").write_bytes(bytes(9))
        written.wait(LONGEST_S)
        ranks.await_files(folder, apart)
        ranks.gather_files(folder, apart)
        return apart

    assert of_both(work) == [[], []]
    assert {path.name for path in folder.iterdir()} == {"shard-0", "shard-1"}


def test_a_checkpoint_counts_once_all_parts_are_there_and_bounds_the_pause(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path), contextlib.ExitStack() as opened:
        events = EventLog(Path("events.jsonl"))
        opened.callback(events.close)
        saves = FrameworkCheckpointer(RunConfig.parse(CONFIG), events, None, longest_pause_s=0.05)
        opened.callback(saves.close)
        checkpoints = Path("checkpoints")

        def save(step: int, *, is_last: bool = False) -> None:
            written = Path("written", str(step))
            written.mkdir(parents=True)
            (written / "shard-0").write_bytes(bytes(step))
            awaited = Awaited(checkpoints, 1, step, (1,))
            saves.save(step, written, {}, 0.0, awaited=awaited, is_last=is_last)

        def send(step: int) -> None:
            folder = arrived(checkpoints, Part(1, step, 1))
            incomplete = folder.with_name("incomplete")
            incomplete.mkdir()
            (incomplete / "shard-1").write_bytes(bytes(step))
            incomplete.rename(folder)

        save(20)
        assert not (checkpoints / "step-00000020").exists()
        save(40)  # left out, since the one before is not whole yet
        send(20)
        other = threading.Timer(0.2, send, (60,))
        save(60, is_last=True)
        other.start()
        saves.require_saved(60)
        assert [path.name for path in sorted(checkpoints.iterdir())] == [
            "step-00000020",
            "step-00000060",
        ]
        for path in checkpoints.iterdir():
            assert verify(path) == []
            assert {"shard-0", "shard-1"} <= {file.name for file in path.iterdir()}
        lines = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
        (failed,) = [line for line in lines if line.get("action") == "failed"]
        assert failed["step"] == 40 and "still on its way between the hosts" in failed["reason"]
