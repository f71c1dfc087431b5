"""What is known of a run at Slurm by its last known job and its journal."""

from __future__ import annotations

import pytest

from trainmaster.backends.slurm.run_status import SlurmSessions
from trainmaster.store.control.slurm import Asked, JobNote


@pytest.mark.parametrize("skew_s", [0.0, 400.0, -400.0])
def test_a_job_that_is_over_does_not_run_by_a_heartbeat_of_another_clock(skew_s: float) -> None:
    over = JobNote("absent", t=1000.0)
    sessions = SlurmSessions(over, None, 995.0 + skew_s, 1001.0 + skew_s, skew_s=skew_s)
    assert not sessions.runs
    assert sessions.wants_start
    next_one = SlurmSessions(over, None, 1010.0 + skew_s, 1011.0 + skew_s, skew_s=skew_s)
    assert next_one.runs


def test_a_controller_that_was_just_silent_is_not_given_a_job() -> None:
    silent = Asked(1000.0, 900.0, "SLURM_UNREACHABLE")
    assert not SlurmSessions(None, silent, None, 1010.0).wants_start
    assert SlurmSessions(None, silent, None, 1030.0).wants_start


def test_the_next_job_is_asked_for_once_the_supervisor_of_this_one_has_ended() -> None:
    def wants(over_t: float, now: float) -> bool:
        job = JobNote("running", t=1000.0, number=7, begin_t=900.0)
        return SlurmSessions(job, None, over_t, now, over_t=over_t).wants_start

    assert wants(1002.0, 1005.0)
    assert not wants(1002.0, 1003.0)  # that it runs was just listed
    assert not wants(890.0, 1005.0)  # the job before it
    assert not wants(1002.0, 1040.0)  # it hangs: the usual questions have to do
