from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.core.journal_records import (
    FIRST_T,
    EventBody,
    attempt_ended,
    attempt_starting,
    lines,
    record,
    state,
)

from trainer_runtime.core.protocol.journal import Record, TransitionError
from trainer_runtime.core.protocol.states import AttemptState, PlacementState
from trainer_runtime.host.supervise.record import Journal

WHOLE: tuple[EventBody, ...] = (
    ("started", {"pid": 7}),
    attempt_starting(1, candidates=[20], set={"optimizer.lr": 0.01}),
    state("preparing", reason=None, detail=None, generation=1),
    ("sample", {"values": {"cpu_util": 97.5}}),
    ("attempt_running", {"attempt": 1}),
    state("running", reason=None, detail=None),
    attempt_ended(
        1, "killed", signal=9, detail="ended by signal 9 (SIGKILL)", last_step=30, started_at_step=0
    ),
    state("recovering", reason="killed", detail="ended by signal 9 (SIGKILL)"),
    (
        "restart_planned",
        {
            "due_t": 5.0,
            "why": "killed",
            "mode": "latest",
            "candidates": None,
            "set": {},
            "skip": None,
        },
    ),
    attempt_starting(2, why="killed"),
    ("attempt_running", {"attempt": 2}),
    state("running", reason=None, detail=None),
    ("attempt_signalled", {"attempt": 2, "why": "stopped"}),
    state("stopping", reason="stopped", detail=None, generation=2),
    attempt_ended(2, "stopped", code=75, last_step=44, started_at_step=20, verified_step=44),
    state("stopped", reason="stopped", detail="exit code 75", generation=2),
    ("closed", {}),
)


def test_the_journal_holds_the_whole_history() -> None:
    found = record(*WHOLE)
    first, second = found.attempts
    assert (found.state, found.reason, found.generation) == (PlacementState.STOPPED, "stopped", 2)
    assert (first.reason, first.signal, first.last_step) == ("killed", 9, 30)
    assert (first.candidates, first.set) == ([20], {"optimizer.lr": 0.01})
    assert (second.code, second.verified_step, second.terminated_why) == (75, 44, "stopped")
    assert found.started_at == {1: 0, 2: 20}
    assert found.telemetry == {"cpu_util": 97.5}
    assert found.closed
    assert found.current is second


def test_a_planned_restart_waits_until_its_attempt_starts() -> None:
    waiting = record(*WHOLE[:9])
    assert waiting.restart_due_t == 5.0
    assert waiting.pending is not None and waiting.pending.why == "killed"
    assert record(*WHOLE[:10]).restart_due_t is None


def test_an_attempt_that_starts_is_being_prepared_from_its_first_line_on() -> None:
    assert record(*WHOLE[:2]).state is PlacementState.PREPARING
    again = record(*WHOLE, attempt_starting(3, generation=3, why="resume"))
    assert again.state is PlacementState.PREPARING
    assert (again.reason, again.closed) == (None, False)


def test_an_attempt_that_replaces_a_crashed_one_is_still_recovering() -> None:
    assert record(*WHOLE[:10]).state is PlacementState.RECOVERING


def test_the_reason_of_an_attempts_end_is_recorded_once() -> None:
    again = record(*WHOLE[:13], ("attempt_signalled", {"attempt": 2, "why": "time_limit"}))
    assert again.attempts[-1].terminated_why == "stopped"
    assert again.attempts[-1].terminated_t == FIRST_T + 12


def test_a_state_that_cannot_follow_is_refused() -> None:
    with pytest.raises(TransitionError, match="stopped cannot become running"):
        record(*WHOLE, state("running"))


def test_news_of_an_attempt_that_was_never_started_are_refused() -> None:
    with pytest.raises(TransitionError, match="attempt 3"):
        record(*WHOLE, ("attempt_running", {"attempt": 3}))


def test_every_line_is_a_sign_of_life() -> None:
    found = record(*WHOLE, ("a kind of a later version", {}))
    assert (found.heartbeat_t, found.last_seq) == (FIRST_T + len(WHOLE), len(WHOLE))


@pytest.mark.parametrize("cut", range(len(WHOLE) + 1))
def test_the_record_survives_a_journey_through_json(cut: int) -> None:
    found = record(*WHOLE[:cut])
    assert Record.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_how_long_an_attempt_lived_ends_with_it() -> None:
    first, second = record(*WHOLE[:11]).attempts
    assert first.state is AttemptState.ENDED
    assert first.seconds(now=1e12) == 5.0
    assert second.seconds(now=FIRST_T + 60) == 51.0
    assert second.seconds(now=0.0) == 0.0


@pytest.mark.parametrize("missing_bytes", [1, 2, 20])
def test_a_line_torn_by_a_kill_is_as_if_never_written(tmp_path: Path, missing_bytes: int) -> None:
    path = tmp_path / "supervisor.jsonl"
    path.write_bytes(b"".join(lines(WHOLE[:2]))[:-missing_bytes])
    journal = Journal(path, lambda: FIRST_T + 50)
    assert journal.record.attempts == []
    journal.write(*attempt_starting(1))
    journal.write("attempt_running", {"attempt": 1})
    journal.close()
    assert len(journal.record.attempts) == 1
    again = Journal(path, lambda: FIRST_T + 60)
    assert again.record == journal.record
    again.close()


def test_a_refused_state_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.jsonl"
    journal = Journal(path, lambda: 1.0)
    with pytest.raises(TransitionError):
        journal.write(*state("recovering"))
    journal.close()
    assert path.read_bytes() == b""


def _found(id: str, severity: str = "warning") -> dict[str, object]:
    return {"id": id, "code": "loss_spike", "severity": severity, "step": 40}


def test_a_finding_is_open_until_it_is_closed_or_another_attempt_begins() -> None:
    opened = ("finding", {"attempt": 1, "finding": _found("aaaa")})
    worse = ("finding", {"attempt": 1, "finding": _found("aaaa", "critical")})
    folded = record(
        *WHOLE[:6], opened, ("finding", {"attempt": 1, "finding": _found("bbbb")}), worse
    )
    assert [item.finding.severity for item in folded.open_findings] == ["critical", "warning"]
    assert folded.findings["aaaa"].opened_t < folded.findings["bbbb"].opened_t
    assert folded.findings["aaaa"].news_t > folded.findings["bbbb"].news_t
    closed = record(*WHOLE[:6], opened, worse, ("finding_closed", {"id": "aaaa"}))
    assert closed.open_findings == []
    assert Record.from_dict(json.loads(json.dumps(closed.to_dict()))) == closed
    assert record(*WHOLE[:6], opened, *WHOLE[6:10]).open_findings == []


def test_a_node_that_left_with_its_job_is_known_no_more() -> None:
    nodes = [
        ("node", {"name": "node1", "state": "connected"}),
        ("node", {"name": "node2", "state": "lost"}),
        ("node", {"name": "node1", "state": "left"}),
        ("node", {"name": "node3", "state": "left"}),
        ("node", {"name": "node3", "state": "connected"}),
    ]
    assert record(*WHOLE[:6], *nodes).nodes == {"node2": "lost", "node3": "connected"}
