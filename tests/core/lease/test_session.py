"""When a place that is lent for a time has a trainer save, and when it kills it."""

from __future__ import annotations

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.lease.session import Session

JOB = Session(1, 0.0, 3600.0, 60.0, save_s=100.0, after_kill_s=5.0)
KERNEL = Session(1, 0.0, 3600.0, 60.0)


def test_an_estimated_save_counts_until_one_was_measured() -> None:
    assert (JOB.over_t(0.0), JOB.over_t(2.0)) == (3340.0, 3536.0)
    assert (KERNEL.over_t(0.0), KERNEL.over_t(2.0)) == (3540.0, 3536.0)


def test_a_trainer_is_killed_half_a_margin_before_the_end_unless_less_is_needed() -> None:
    assert (KERNEL.kill_t, JOB.kill_t) == (3570.0, 3595.0)


def test_a_save_that_is_asked_for_early_may_take_nearly_all_that_is_left() -> None:
    minutes, moments = JOB.asked_at(1000.0, 1600.0), JOB.asked_at(1000.0, 1008.0)
    assert minutes.over_t(0.0) <= 1000.0 and minutes.over_t(100.0) <= 1000.0
    assert (minutes.kill_t, moments.kill_t) == (1595.0, 1006.0)
    assert JOB.asked_at(1000.0, 900.0).kill_t == 1000.0


def test_a_session_is_read_as_it_was_written() -> None:
    for session in (JOB, KERNEL):
        assert Session.of(Fields(session.to_dict())) == session
    assert set(KERNEL.to_dict()) == {"v", "number", "begin_t", "end_t", "margin_s"}
