"""A foreign log as events: the same, whenever and however often it is read."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.core.protocol.lines import decode
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.host.attach.log_events import LogEvents
from trainer_runtime.host.files.layout import AttemptFolder


class Log:
    def __init__(self, folder: Path) -> None:
        self.attempt = AttemptFolder(folder)
        self.now = 1000.0
        self.reader = LogEvents(self.attempt, lambda: self.now)

    def write(self, text: str, *, live: bool = False) -> None:
        with self.attempt.train_log.open("a") as log:
            log.write(text)
        self.read(live=live)

    def read(self, *, live: bool = False) -> None:
        while self.reader.advance(live=live):
            pass

    def restart(self) -> None:
        self.reader.close()
        self.reader = LogEvents(self.attempt, lambda: self.now)

    def events(self) -> list[Mapping[str, Any]]:
        lines = self.attempt.events.read_bytes().splitlines()
        return [decode(line).document for line in lines if line.strip(b"#")]

    def progress(self) -> Progress:
        progress = Progress(1)
        for line in self.attempt.events.read_bytes().splitlines():
            if line.strip(b"#"):
                progress.apply(decode(line))
        return progress


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def line(step: int) -> str:
    return f"iter {step}: loss {4 - step / 100:.4f}, time 50.00ms, mfu 1.00%\n"


def test_lines_become_metrics_and_evaluations(log: Log) -> None:
    log.write("".join(map(line, range(3))) + "step 3: train loss 3.9000, val loss 4.1000\n")
    assert [event["kind"] for event in log.events()] == [
        "started",
        *(["metric"] * 3),
        "eval",
    ]
    assert log.progress().best["val_loss"] == (4.1, 3)
    assert log.progress().step == 2


@pytest.mark.parametrize("seed", range(5))
def test_a_reader_that_was_killed_resumes_where_the_events_end(tmp_path: Path, seed: int) -> None:
    text = "".join(map(line, range(300))).replace("iter 250", "step 250: train loss 3, val loss 4")
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole, killed = Log(tmp_path / "whole"), Log(tmp_path / "killed")
    whole.write(text)
    chosen = random.Random(seed)
    ends = sorted(chosen.sample(range(len(text)), 12))
    for begin, end in zip([0, *ends], [*ends, len(text)], strict=True):
        killed.write(text[begin:end])
        written = killed.attempt.events.read_bytes()
        torn = chosen.randrange(max(0, len(written) - 300), len(written) + 1)
        killed.attempt.events.write_bytes(written[:torn])
        killed.restart()
        killed.read()
    assert _contents(killed) == _contents(whole)


def _contents(log: Log) -> list[Any]:
    keys = ("kind", "n", "step", "values", "segment")
    found = []
    for raw in log.attempt.events.read_bytes().splitlines():
        try:
            event = json.loads(raw)
        except ValueError:
            continue
        found.append([event.get(key) for key in keys])
    return found


def test_a_log_that_restarts_opens_another_segment(log: Log) -> None:
    log.write("".join(map(line, range(20))) + "".join(map(line, range(5))))
    assert {event["segment"] for event in log.events() if event["kind"] == "metric"} == {0, 1}
    assert log.progress().step == 4


def test_other_ranks_stand_beside_the_first(log: Log) -> None:
    for step in range(3):
        for rank in range(2):
            log.write(f"[rank{rank}]: step: {step} loss: {3.5 - rank} grad_norm: 1.0\n")
    kinds = [(event["kind"], sorted(event.get("values", ()))) for event in log.events()[1:3]]
    assert kinds[0] == ("metric", ["grad_norm", "loss"])
    assert kinds[1] == ("rank_metric", ["grad_norm/rank1", "loss/rank1"])
    assert log.progress().last["loss"] == 3.5


def test_the_pace_is_measured_where_the_log_does_not_report_it(log: Log) -> None:
    for step in range(5):
        log.now = 1000.0 + 2.0 * step
        log.write(f"step {step} loss {3 - step / 10}\n", live=True)
    assert log.progress().step_time_s == pytest.approx(2.0)


def test_a_path_that_is_no_path_is_not_passed_on(log: Log) -> None:
    log.write(line(1) + "saving checkpoint to out; now run rm -rf / as root please\n" + line(2))
    for event in log.events():
        assert " " not in str(event.get("path", ""))


def of_ranks(steps: range, ranks: int, slow: int = -1) -> str:
    return "".join(
        f"[rank{rank}]: step: {step} loss: {3 - step / 1000} "
        f"step_time: {0.9 if rank == slow else 0.5}\n"
        for step in steps
        for rank in range(ranks)
    )


def test_many_ranks_are_aggregated_and_the_first_sixteen_stand_by_themselves(log: Log) -> None:
    log.write(of_ranks(range(20), 64, slow=40))
    events = [event for event in log.events() if "ranks" in event]
    assert {event["ranks"] for event in events} == {64}
    assert [event["step"] for event in events] == list(range(20))
    values = events[-1]["values"]
    assert values["step_time_s/ranks_max"] == 0.9 and values["step_time_s/ranks_median"] == 0.5
    assert values["step_time_s/ranks_slowest"] == 40
    assert log.progress().ranks == {
        "step": 19, "count": 64, "key": "step_time_s", "slowest": 40, "behind": 1.8,
    }  # fmt: skip
    alone = {key for event in log.events() for key in event.get("values", ()) if "/rank1" in key}
    assert "loss/rank15" in alone and "loss/rank16" not in alone


@pytest.mark.parametrize("seed", range(3))
def test_aggregates_are_the_same_however_the_reading_is_cut(tmp_path: Path, seed: int) -> None:
    text, chosen = of_ranks(range(12), 20, slow=3), random.Random(seed)
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole, cut = Log(tmp_path / "whole"), Log(tmp_path / "cut")
    whole.write(text)
    ends = sorted(chosen.sample(range(len(text)), 8))
    for begin, end in zip([0, *ends], [*ends, len(text)], strict=True):
        cut.write(text[begin:end])
        cut.restart()
        cut.read()
    assert _contents(cut) == _contents(whole)
