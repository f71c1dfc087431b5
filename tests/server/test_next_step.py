"""What an operator is told to do about a finding depends on whether the run goes on."""

from __future__ import annotations

from typing import Any

import pytest
from planted import HALVED, finding
from recorded import Told, attempt_starting, record, state
from scripted import CONFIG

from trainer_runtime.core.desired import Desired
from trainer_runtime.core.states import DesiredState
from trainmaster.diagnosis.of_run import open_findings
from trainmaster.next_step import next_step
from trainmaster.run import Run
from trainmaster.view import RunView

_RUNNING = (attempt_starting(1), state("preparing"), state("running"))
_RECOVERING = (*_RUNNING, state("recovering", reason="crashed"))
_FAILED = (*_RUNNING, state("failed", reason="crashed"))
_SPIKE: dict[str, Any] = {"code": "loss_spike", "severity": "warning"}


def told(*journal: Told) -> str:
    """The next step of a run whose journal this is."""
    run = Run("r-abcdef", "r", 1.0, "local", 1, "", CONFIG, {}, {}, False, False)
    found = record(*journal)
    view = RunView(run, Desired(DesiredState.RUNNING, 1), found, [], found.heartbeat_t or 0.0)
    return next_step(view, open_findings(view))


@pytest.mark.parametrize(
    ("journal", "named"),
    [
        ((*_RUNNING, finding("1a", **_SPIKE)), ["diagnose r-abcdef", "loss_spike", "wait"]),
        ((*_RUNNING, finding("1a", patches=[HALVED])), ["stop r-abcdef", "--apply 1a`"]),
        ((*_RECOVERING, finding("1a")), ["recovers by itself", "diagnose r-abcdef"]),
        ((*_FAILED, finding("1a")), ["diagnose r-abcdef", "resume r-abcdef`"]),
        ((*_FAILED, finding("1a", patches=[HALVED])), ["--apply 1a:halve_micro_batch"]),
    ],
)
def test_the_diagnosis_and_its_patch_are_named(journal: tuple[Told, ...], named: list[str]) -> None:
    assert [words for words in named if words not in told(*journal)] == []


@pytest.mark.parametrize("code", ["plateau", "gpu_idle"])
def test_what_is_only_worth_knowing_changes_nothing(code: str) -> None:
    assert told(*_RUNNING, finding("1a", code=code, severity="info")) == told(*_RUNNING)
