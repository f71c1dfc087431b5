"""What to do after a look at a run: of a training of others, nothing that would be refused."""

from __future__ import annotations

from typing import Any

import pytest
from support.box.scripted_processes import CONFIG

from trainer_runtime.core.diagnosis.stacks import verdict as verdicts
from trainer_runtime.core.diagnosis.stacks.messages import ADVICE, REASONS, advice
from trainer_runtime.core.diagnosis.stacks.verdict import Verdict
from trainmaster.runs.inspect.next_step import next_step
from trainmaster.store.run import Run

_STOPPED = Verdict(verdicts.STALL, 0.95, "stopped_process", 0, {"pid": 4711, "rank": 0})
_OTHERS = [Verdict(code, 0.9, next(iter(REASONS))) for code in ADVICE]


def run_of(config: dict[str, Any]) -> Run:
    return Run("r-abcdef", "r", 1.0, "gpu1", "", config, {}, {})


ATTACHED, OURS = run_of({**CONFIG, "framework": "attached"}), run_of(CONFIG)


@pytest.mark.parametrize("found", [_STOPPED, *_OTHERS], ids=lambda found: found.code)
@pytest.mark.parametrize("py_spy", [None, "not_allowed", "not_installed", "refused"])
def test_nothing_that_is_refused_is_named_for_a_training_of_others(
    found: Verdict, py_spy: str | None
) -> None:
    told = " ".join([next_step(ATTACHED, found, py_spy), *advice(found, ours=False)])
    assert [word for word in ("trainmaster stop", "resume", "checkpoint,") if word in told] == []


@pytest.mark.parametrize("run", [ATTACHED, OURS])
def test_a_process_that_a_signal_stopped_is_first_let_go_on(run: Run) -> None:
    assert next_step(run, _STOPPED, "not_allowed").startswith("`kill -CONT 4711` on gpu1")
    assert "`kill -CONT 4711`" in advice(_STOPPED, ours=not run.is_attached)[0]


def test_a_run_of_ours_that_hangs_is_stopped_and_resumed() -> None:
    told = next_step(OURS, Verdict(verdicts.HANG_DATA, 0.9, "waits_for_data"), None)
    assert "`trainmaster stop r-abcdef` and `trainmaster resume r-abcdef`" in told
