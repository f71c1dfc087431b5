"""Which of a run's jobs are alive, by what `squeue` prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer_runtime.core.answers.slurm import ENDED, RUNNING, WAITING
from trainer_runtime.host.slurm.queue import jobs_by_name, jobs_of

NAME = "small-abc234"


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is printed by a program of that name."""
    (tmp_path / "squeue").write_text('#!/bin/sh\ncat "${0%/*}/listed"\n')
    (tmp_path / "squeue").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "listed"


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("PENDING", WAITING),
        ("REQUEUE_HOLD", WAITING),
        ("RUNNING", RUNNING),
        ("COMPLETING", RUNNING),
        ("RESIZING", RUNNING),
        ("A_WORD_OF_NEXT_YEAR", RUNNING),
        ("CANCELLED", ENDED),
        ("TIMEOUT", ENDED),
    ],
)
def test_a_job_is_over_once_slurm_says_so_and_not_while_it_saves(
    squeue: Path, tmp_path: Path, word: str, state: str
) -> None:
    squeue.write_text(f"7|{NAME}|{word}|1795476070|1795476099|node1|None\n")
    (job,) = jobs_by_name(tmp_path, NAME)
    assert (job.state, job.word, job.is_alive) == (state, word, state != ENDED)
    folder = str(tmp_path / "runs" / NAME)
    asked = {"folders": [folder], "about": [{"place": 0, "job_id": 7}]}
    ended = jobs_of(json.dumps(asked))["ended"]
    assert bool(ended) is (state == ENDED)


@pytest.mark.parametrize(("others", "alone"), [("RUNNING", False), ("PENDING", True), ("", True)])
def test_a_waiting_job_is_alone_while_no_other_of_the_user_runs(
    squeue: Path, tmp_path: Path, others: str, alone: bool
) -> None:
    rows = [f"7|{NAME}|PENDING|N/A|N/A||QOSMaxGRESPerUser"]
    rows += [f"8|something-else|{others}|1795476070|1795476099|node1|None"] if others else []
    squeue.write_text("".join(f"{row}\n" for row in rows))
    asked = json.dumps({"folders": [str(tmp_path / "runs" / NAME)]})
    [job] = jobs_of(asked)["jobs"]
    assert job["alone"] is alone
