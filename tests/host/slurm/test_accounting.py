"""What Slurm's accounting says of jobs, and what is concluded where it says nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer_runtime.core.answers.slurm import ENDED, RUNNING, TRAINMASTER, JobAnswer, JobEnd
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.slurm.accounting import Accounted, read_accounted
from trainer_runtime.host.slurm.queue import AskedJob, ends_of
from trainer_runtime.host.slurm.submit import MOST_BARREN, MOST_UNSEEN, why_given_up
from trainer_runtime.host.slurm.submitted import note_job

NAME = "small-abc234"
# Of Slurm 22.05.
OUTPUT = """\
1|small-abc234|CANCELLED by 65534|1795475993|1795475996|0:15
2|small-abc234|CANCELLED by 4199999999|None|1795476000|0:0
3|small-abc234|TIMEOUT|1795476001|1795476065|0:0
4|small-abc234|RUNNING|1795476070|Unknown|0:0
7|small-abc234|COMPLETING|1795476070|1795476099|0:15
5.batch|batch|COMPLETED|1795476070|1795476080|0:0
6|small-abc234|NODE_FAIL|1795476070|1795476099|1:0
"""
REQUEST = Desired(DesiredState.RUNNING, 1)


def test_a_job_that_has_ended_is_read_with_who_cancelled_it() -> None:
    found = read_accounted(OUTPUT)
    assert list(found) == [1, 2, 3, 6]
    assert found[1] == Accounted(1, NAME, "CANCELLED", "nobody", 1795475993.0, 1795475996.0, "0:15")
    assert (found[2].by, found[2].begin_t) == ("uid 4199999999", None)
    assert (found[3].word, found[6].exit_code) == ("TIMEOUT", "1:0")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run's folder on a cluster that keeps no accounts."""
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = tmp_path / NAME
    folder.mkdir()
    return RunFolder(folder)


def test_an_end_is_known_from_the_list_alone_where_no_accounts_are_kept(run: RunFolder) -> None:
    note_job(run, 7, cancelled=True)
    listed = [
        JobAnswer(0, 6, ENDED, "TIMEOUT", begin_t=10.0, end_t=70.0),
        JobAnswer(0, 7, ENDED, "CANCELLED", end_t=80.0, has_begun=False),
        JobAnswer(0, 8, ENDED, "CANCELLED", begin_t=90.0, end_t=95.0),
        JobAnswer(0, 9, RUNNING, "RUNNING"),
    ]
    asked = [AskedJob(0, run.root, number) for number in (5, 6, 7, 8, 9)]
    assert ends_of(listed, asked) == [
        JobEnd(0, 5),  # purged: nobody knows
        JobEnd(0, 6, "TIMEOUT", None, 10.0, 70.0),
        JobEnd(0, 7, "CANCELLED", TRAINMASTER, None, 80.0),
        JobEnd(0, 8, "CANCELLED", None, 90.0, 95.0),
    ]


def test_a_purged_job_that_left_no_session_has_not_begun(run: RunFolder) -> None:
    for job_id in range(1, MOST_UNSEEN):
        note_job(run, job_id, generation=1, verified_step=None)
        assert why_given_up(run, REQUEST, []) is None
    note_job(run, MOST_UNSEEN, generation=1, verified_step=None)
    given_up = why_given_up(run, REQUEST, [])
    assert given_up is not None and given_up[0] == "no_progress"


def test_a_purged_job_that_left_its_session_counts_as_one_without_progress(run: RunFolder) -> None:
    for job_id in range(1, MOST_BARREN + 1):
        note_job(run, job_id, generation=1, verified_step=None)
        run.session.write_text(json.dumps({"job_id": job_id}))
        assert (why_given_up(run, REQUEST, []) is None) == (job_id < MOST_BARREN)
