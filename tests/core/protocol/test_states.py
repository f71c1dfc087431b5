from __future__ import annotations

import pytest

from trainer_runtime.core.protocol.states import (
    ENDED_PLACEMENTS,
    ENDED_RUNS,
    TRANSITIONS,
    AttemptState,
    DesiredState,
    PlacementState,
    RunState,
    may_follow,
    run_state,
)

LOST_AFTER_S = 120.0


def seen(
    placement: PlacementState | None,
    desired: DesiredState = DesiredState.RUNNING,
    *,
    pending: bool = False,
    silent_for_s: float = 1.0,
) -> RunState:
    return run_state(
        placement,
        desired,
        request_pending=pending,
        silent_for_s=silent_for_s,
        lost_after_s=LOST_AFTER_S,
    )


def test_every_state_has_its_row_in_the_table() -> None:
    assert set(TRANSITIONS) == {*AttemptState, *PlacementState}


@pytest.mark.parametrize("state", PlacementState)
def test_a_state_may_stand_again(state: PlacementState) -> None:
    assert may_follow(state, state)


@pytest.mark.parametrize("ended", sorted(ENDED_PLACEMENTS - {PlacementState.SUPERSEDED}))
def test_an_ended_placement_starts_again_by_preparing_alone(ended: PlacementState) -> None:
    following = {state for state in PlacementState if may_follow(ended, state)} - {ended}
    assert following == {PlacementState.PREPARING, PlacementState.SUPERSEDED}


@pytest.mark.parametrize("state", PlacementState)
def test_nothing_follows_a_superseded_placement(state: PlacementState) -> None:
    assert may_follow(PlacementState.SUPERSEDED, state) == (state is PlacementState.SUPERSEDED)


@pytest.mark.parametrize("state", sorted(set(PlacementState) - ENDED_PLACEMENTS))
def test_every_living_placement_can_come_to_every_end(state: PlacementState) -> None:
    for end in (PlacementState.COMPLETED, PlacementState.FAILED, PlacementState.STOPPED):
        assert may_follow(state, end)


def test_an_attempt_never_lives_again() -> None:
    assert not may_follow(AttemptState.ENDED, AttemptState.STARTING)
    assert not may_follow(AttemptState.ENDED, AttemptState.RUNNING)
    assert not may_follow(AttemptState.RUNNING, AttemptState.STARTING)


def test_a_run_without_a_placement_is_planned_until_it_is_stopped() -> None:
    assert seen(None) is RunState.PLANNED
    assert seen(None, DesiredState.STOPPED) is RunState.STOPPED


@pytest.mark.parametrize("placement", sorted(set(PlacementState) - ENDED_PLACEMENTS))
def test_a_living_run_is_lost_once_its_box_is_silent_for_too_long(
    placement: PlacementState,
) -> None:
    assert seen(placement, silent_for_s=LOST_AFTER_S + 1) is RunState.LOST
    assert seen(placement, silent_for_s=LOST_AFTER_S) is not RunState.LOST


@pytest.mark.parametrize("placement", sorted(ENDED_PLACEMENTS))
def test_an_ended_run_is_never_lost(placement: PlacementState) -> None:
    assert seen(placement, silent_for_s=1e9) in ENDED_RUNS


def test_a_run_asked_to_stop_is_stopping_until_it_has_ended() -> None:
    assert seen(PlacementState.RUNNING, DesiredState.STOPPED) is RunState.STOPPING
    assert seen(PlacementState.PREPARING, DesiredState.STOPPED) is RunState.STOPPING
    assert seen(PlacementState.COMPLETED, DesiredState.STOPPED) is RunState.COMPLETED


def test_a_resume_that_the_box_has_not_seen_is_recovering_and_not_ended() -> None:
    assert seen(PlacementState.FAILED, pending=True) is RunState.RECOVERING
    assert seen(PlacementState.COMPLETED, pending=True) is RunState.RECOVERING


def test_a_stop_that_reaches_an_ended_run_changes_nothing() -> None:
    assert seen(PlacementState.FAILED, DesiredState.STOPPED, pending=True) is RunState.FAILED


def test_a_placed_run_is_preparing() -> None:
    assert seen(PlacementState.PLACED) is RunState.PREPARING
