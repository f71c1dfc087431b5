"""Verdicts on stalls from synthetic stacks; real processes: test_inspection.py."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_runtime.core.diagnosis.stacks import messages
from trainer_runtime.core.diagnosis.stacks.frames import Frame, Thread
from trainer_runtime.core.diagnosis.stacks.verdict import Pace, Process, Rank, Verdict, judge

_SITE = "/opt/venv/lib/python3.11/site-packages"
_REDUCE = (f"{_SITE}/torch/distributed/distributed_c10d.py", "all_reduce")
_BARRIER = (f"{_SITE}/torch/distributed/distributed_c10d.py", "barrier")
_FETCH = (f"{_SITE}/torch/utils/data/dataloader.py", "_next_data")
_SAVE = (f"{_SITE}/torch/serialization.py", "_save")
_COMPILE = (f"{_SITE}/torch/_dynamo/convert_frame.py", "compile")
_BACKWARD = (f"{_SITE}/torch/autograd/graph.py", "_engine_run_backward")
_OWN = ("/home/me/train.py", "prepare")
_SILENT = Pace(step=10, silent_s=300.0, usual_s=0.5, recent_s=0.6)


def sample(*calls: tuple[str, str], line: int = 5) -> tuple[Thread, ...]:
    frames = [Frame(file, line, function) for file, function in calls]
    frames.append(Frame("/home/me/train.py", 30, "<module>"))
    return (Thread(tuple(frames), current=True),)


def rank(number: int, *calls: tuple[str, str], **fields: Any) -> Rank:
    """A rank whose stack is `calls`, innermost first, in each of three samples."""
    return Rank(number, Process(100 + number, (sample(*calls),) * 3, **fields))


def named(*ranks: Rank, pace: Pace = _SILENT, world_size: int | None = None) -> Verdict:
    return judge(ranks, pace, world_size)


def test_of_many_ranks_the_one_that_did_not_join_is_named() -> None:
    found = named(*(rank(n, _OWN if n == 37 else _REDUCE) for n in range(64)))
    assert (found.code, found.rank, found.confidence) == ("hang_collective", 37, 0.9)
    assert "rank 37" in found.evidence[0] and len(found.evidence) <= 6


def test_a_rank_in_another_collective_is_named() -> None:
    found = named(*(rank(n, _BARRIER if n == 2 else _REDUCE) for n in range(4)))
    assert (found.code, found.rank, found.reason) == ("hang_collective", 2, "different_collectives")


def test_ranks_that_wait_for_their_gpus_wait_for_each_other() -> None:
    assert named(rank(0, _BACKWARD), rank(1, _BACKWARD)).code == "hang_collective"
    found = named(rank(0, _BACKWARD), rank(1, _FETCH))
    assert (found.code, found.rank) == ("hang_data", 1)


def test_one_rank_that_saves_keeps_the_others_waiting() -> None:
    found = named(rank(0, _SAVE), rank(1, _BARRIER))
    assert (found.code, found.rank) == ("hang_checkpoint", 0)


def test_ranks_on_other_machines_are_mentioned() -> None:
    found = named(rank(0, _REDUCE), rank(1, _REDUCE), world_size=16)
    assert (found.code, found.reason) == ("hang_collective", "ranks_missing")
    assert "2 ranks on this machine wait for the others of 16" in messages.explain(found)


def test_a_straggler_that_makes_progress_is_slow() -> None:
    samples = (sample(_OWN), sample(("/home/me/train.py", "augment"), _OWN), sample(_OWN))
    found = named(rank(0, _REDUCE), Rank(1, Process(101, samples)))
    assert (found.code, found.rank) == ("slow_not_hung", 1)


def test_workers_that_make_progress_mean_slow_data() -> None:
    busy = Process(7, (sample(_OWN),) * 3, cpu_share=0.97)
    waiting = rank(0, _FETCH)
    found = named(Rank(0, waiting.process, (busy,)))
    assert (found.code, found.reason) == ("slow_not_hung", "slow_data")
    assert named(waiting).code == "hang_data"


def test_a_step_that_is_compiled_is_slow() -> None:
    assert named(rank(0, _COMPILE), pace=Pace()).code == "slow_not_hung"


@pytest.mark.parametrize(
    ("pace", "code"),
    [
        (Pace(step=9, silent_s=0.4, usual_s=0.5, recent_s=0.5), "moving"),
        (Pace(step=9, silent_s=0.4, usual_s=0.5, recent_s=0.5, gained=3), "moving"),
        (Pace(step=9, silent_s=20.0, usual_s=0.5, recent_s=21.0), "slow_not_hung"),
        (Pace(step=9, silent_s=1.0, usual_s=0.5, recent_s=21.0, gained=1), "slow_not_hung"),
        (Pace(step=9, silent_s=900.0, usual_s=0.5, recent_s=21.0), "hang_data"),
    ],
)
def test_where_steps_come_nothing_hangs(pace: Pace, code: str) -> None:
    assert named(rank(0, _FETCH), pace=pace).code == code


def test_system_calls_decide_where_stacks_are_missing() -> None:
    blocked = (("fsync", "/srv/run/checkpoints/.writing/model.safetensors", "D"),)
    found = named(Rank(0, Process(5, (), "D", 0.0, blocked)))
    assert (found.code, found.confidence) == ("hang_checkpoint", 0.7)
    assert named(Rank(0, Process(5))).reason == "no_stacks"


def test_an_unknown_place_is_a_stall_without_a_finding() -> None:
    found = named(rank(0, _OWN))
    assert (found.code, found.reason) == ("stall", "unknown_place")
    assert messages.as_finding(found, placement=1, attempt=1, step=10) is None


def test_a_verdict_makes_a_finding_that_says_what_to_do() -> None:
    found = named(rank(0, _REDUCE), rank(1, _OWN))
    finding = messages.as_finding(found, placement=2, attempt=3, step=10)
    assert finding is not None
    assert (finding.code, finding.severity, finding.step) == ("hang_collective", "critical", 10)
    assert finding.led_to == ("stall",) and finding.advice
    assert "rank 1 has not joined" in finding.explanation
    again = messages.as_finding(found, placement=2, attempt=3, step=10)
    assert again is not None and again.id == finding.id


def test_every_reason_has_an_explanation_and_every_verdict_advice() -> None:
    slots = dict.fromkeys(("rank", "pid", "seen", "world_size", "recent_s", "usual_s"), 1)
    for reason in messages.REASONS:
        assert "{" not in messages.explain(Verdict("stall", 0.5, reason, slots=slots))
