from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trainer_runtime.core.protocol.lines import complete_lines, decode
from trainer_runtime.train.attempt.events import EventLog

REPOSITORY = Path(__file__).parents[3]
LIMIT_BYTES = 4096


def events_of(path: Path) -> list[dict[str, object]]:
    lines, _ = complete_lines(path.read_bytes())
    return [decode(line).document for line in lines]


def test_events_are_numbered_and_at_full_precision(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", clock=lambda: 12.5)
    log.emit("metric", step=1, values={"loss": 1 / 3})
    log.emit("metric", step=2, values={"loss": math.nan})
    log.close()
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {
        "v": 1,
        "seq": 0,
        "t": 12.5,
        "kind": "metric",
        "step": 1,
        "values": {"loss": 1 / 3},
    }
    assert json.loads(lines[1])["values"] == {"loss": "NaN"}


def test_a_torn_last_line_is_ended_and_numbers_continue(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.emit("phase", name="a", step=0)
    log.close()
    with path.open("ab") as file:
        file.write(b'{"v":1,"seq":1,"t":1')
    log = EventLog(path)
    log.emit("phase", name="b", step=0)
    log.close()
    lines = path.read_bytes().split(b"\n")
    assert decode(lines[0]).document["name"] == "a"
    assert lines[1] == b'{"v":1,"seq":1,"t":1'
    assert decode(lines[2]).document["name"] == "b"
    assert decode(lines[2]).seq == 1


def test_threads_never_mix_their_lines(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")

    def emit_many() -> None:
        for number in range(200):
            log.emit("phase", name="x" * 100, step=number)

    threads = [threading.Thread(target=emit_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert [event["seq"] for event in events_of(tmp_path / "events.jsonl")] == list(range(800))


def test_events_wait_out_a_full_disk_and_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    done = subprocess.run(
        [sys.executable, __file__, str(path)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["refused", "synced"]
    assert done.stderr.count("events wait") == 1
    assert [event["seq"] for event in events_of(path)] == list(range(101))


def write_through_a_full_disk(path: Path) -> None:
    """As on a disk that fills up and is freed later: a limit on the file's size, then none."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, resource.RLIM_INFINITY))
    log = EventLog(path)
    for step in range(100):
        log.emit("phase", name="x" * 100, step=step)
    with pytest.raises(OSError):
        log.sync()
    print("refused")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.emit("phase", name="freed", step=100)
    log.sync()
    print("synced")


if __name__ == "__main__":
    write_through_a_full_disk(Path(sys.argv[1]))
