"""The jobs that were submitted for a run, as its folder knows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.slurm.submitted import note_job, session_number, submitted_lines


@pytest.mark.parametrize("missing_bytes", [1, 2, 20])
def test_a_torn_line_takes_no_later_job_with_it(tmp_path: Path, missing_bytes: int) -> None:
    run, jobs = RunFolder(tmp_path), tmp_path / "jobs.jsonl"
    note_job(run, 1, generation=1)
    note_job(run, 2, generation=1)
    os.truncate(jobs, jobs.stat().st_size - missing_bytes)
    note_job(run, "3_1", generation=1)
    note_job(run, 4, cancelled=True)
    assert [line["job_id"] for line in submitted_lines(tmp_path)] == [1, "3_1", 4]
    assert session_number(tmp_path) == 3
