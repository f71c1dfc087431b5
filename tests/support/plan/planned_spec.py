"""Plans of specs, and the errors of those that are refused."""

from __future__ import annotations

import pytest
from support.runs.running_run import run_async

from trainmaster.errors.errors import TrainmasterError
from trainmaster.plan.planned import Planned
from trainmaster.runs.planning.plan_run import plan_spec
from trainmaster.sync.workspace import Workspace


def planned(workspace: Workspace, spec: str) -> Planned:
    return run_async(lambda: plan_spec(workspace, spec, None, []))


def refused(workspace: Workspace, spec: str) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as error:
        planned(workspace, spec)
    return error.value
