"""The step of a checkpoint that does not say its own: by when it was written."""

from __future__ import annotations

from pathlib import Path

from trainer_runtime.host.attach.log_events import LogEvents
from trainer_runtime.host.attach.unwritten_events import write_left_events
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.script.step_times import StepTimes


def _lines(first: int, end: int) -> str:
    return "".join(f"iter {step}: loss 2.5000, time 10.00ms\n" for step in range(first, end))


def test_a_checkpoint_that_a_killed_relay_has_not_seen_is_of_no_earlier_step(
    tmp_path: Path,
) -> None:
    run = RunFolder(tmp_path)
    attempt = run.attempt(1)
    attempt.root.mkdir(parents=True)
    attempt.train_log.write_text(_lines(1, 6))
    relay = LogEvents(attempt, lambda: 1000.0, launched=True)
    assert relay.advance(live=True)
    relay.close()
    with attempt.train_log.open("a") as log:
        log.write(_lines(6, 41))
    write_left_events(attempt, None)
    assert StepTimes(run, 2).at(1000.5) == 40
    assert StepTimes(run, 2).at(999.0) == 0
