"""A profile of ten steps of TRL's loop, which changes nothing of what is trained."""

from __future__ import annotations

import pytest
from support.train import profiled
from support.train.preference_runs import MakeRun

pytestmark = pytest.mark.engine


def test_a_profile_changes_no_loss(make: MakeRun) -> None:
    plain, run = (make("dpo", name, steps=16) for name in ("plain", "profiled"))
    profiled.ask(run)
    assert plain.train() == run.train() == 0
    assert run.series("loss") == plain.series("loss")
    (profile,) = profiled.profiles(run)
    profiled.assert_plausible(profile)
