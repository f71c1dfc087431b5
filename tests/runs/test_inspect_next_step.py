"""The next step after an inspection: for an attached training, nothing that would be refused."""

from __future__ import annotations

from typing import Any

import pytest
from support.host.scripted_processes import CONFIG

from trainer_runtime.core.diagnosis.stacks import verdict as verdicts
from trainer_runtime.core.diagnosis.stacks.messages import ADVICE, REASONS, advice
from trainer_runtime.core.diagnosis.stacks.verdict import Pace, Verdict
from trainmaster.runs.inspect.inspect_run import next_step
from trainmaster.store.run import Run

_STOPPED = Verdict(verdicts.STALL, 0.95, "stopped_process", 0, {"pid": 4711, "rank": 0})
_OTHERS = [Verdict(code, 0.9, next(iter(REASONS))) for code in ADVICE]


def run_of(config: dict[str, Any]) -> Run:
    return Run("r-abcdef", "r", 1.0, "gpu1", "", config, {}, {})


ATTACHED, OURS = run_of({**CONFIG, "framework": "attached"}), run_of(CONFIG)
PROGRAM = run_of({**CONFIG, "framework": "script", "script": {"command": ["python3", "train.py"]}})


@pytest.mark.parametrize("found", [_STOPPED, *_OTHERS], ids=lambda found: found.code)
@pytest.mark.parametrize("py_spy", [None, "not_allowed", "not_installed", "refused"])
def test_nothing_that_is_refused_is_named_for_a_training_of_others(
    found: Verdict, py_spy: str | None
) -> None:
    text = " ".join([next_step(ATTACHED, found, py_spy), *advice(found, ours=False)])
    assert [word for word in ("trainmaster stop", "resume", "checkpoint,") if word in text] == []


@pytest.mark.parametrize("run", [ATTACHED, OURS])
def test_a_process_that_a_signal_stopped_is_first_continued(run: Run) -> None:
    assert next_step(run, _STOPPED, "not_allowed").startswith("`kill -CONT 4711` on gpu1")
    assert "`kill -CONT 4711`" in advice(_STOPPED, ours=not run.is_attached)[0]


def test_a_run_of_ours_that_hangs_is_stopped_and_resumed() -> None:
    text = next_step(OURS, Verdict(verdicts.HANG_DATA, 0.9, "waits_for_data"), None)
    assert "`trainmaster stop r-abcdef` and `trainmaster resume r-abcdef`" in text


@pytest.mark.parametrize(
    ("run", "then"),
    [
        (OURS, "`trainmaster stop r-abcdef` and `trainmaster resume r-abcdef`."),
        (ATTACHED, "its owner has to end it and start it again."),
    ],
)
def test_a_run_without_a_step_for_long_is_not_inspected_again(run: Run, then: str) -> None:
    found = Verdict(verdicts.STALL, 0.5, "unknown_place")
    late, soon = Pace(40, 90.0, 0.5), Pace(40, 3.0, 0.5)
    assert next_step(run, found, "used", late) == f"No step for 1 min 30 s: {then}"
    repeated = "`trainmaster inspect r-abcdef" + ("" if run is OURS else " --allow-py-spy") + "`"
    assert repeated in next_step(run, found, "used", soon)


@pytest.mark.parametrize(
    ("run", "event"), [(OURS, "checkpoint"), (PROGRAM, "finding"), (ATTACHED, "finding")]
)
def test_a_run_that_progresses_is_waited_for_until_what_it_can_have(run: Run, event: str) -> None:
    text = next_step(run, Verdict(verdicts.MOVING, 0.9, next(iter(REASONS))), None)
    assert text == f"`trainmaster wait r-abcdef --until {event},end --timeout 3600`"
