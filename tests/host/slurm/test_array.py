"""The submission of several runs as one array, by programs that print what Slurm's would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.slurm.array import joined, open_array
from trainer_runtime.host.slurm.programs import SlurmError
from trainer_runtime.host.slurm.submit import submit

ARRAY = "array-abc234"
RUNS = ("small-aaaaaa", "small-bbbbbb", "small-cccccc")
# Each notes how it was called, and what it was given.
PROGRAM = """\
#!/bin/sh
cd "${0%/*}"
echo "${0##*/} $*" >>calls
case "${0##*/}" in
sbatch) echo 42; cp held listed ;;
squeue) cat listed ;;
scontrol) cat >>calls; test ! -e broken && cp named listed ;;
esac
"""


@pytest.fixture
def bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("sbatch", "squeue", "scontrol", "scancel"):
        (tmp_path / name).write_text(PROGRAM)
        (tmp_path / name).chmod(0o700)
    (tmp_path / "listed").touch()
    (tmp_path / "held").write_text(held(0, 2))
    named = (f"42_{index}|{run}|PENDING|N/A|N/A||None\n" for index, run in enumerate(RUNS))
    (tmp_path / "named").write_text("".join(named))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def held(*indexes: int) -> str:
    return "".join(f"42_{i}|{ARRAY}|PENDING|N/A|N/A||JobHeldUser\n" for i in indexes)


def run_folder(root: Path, index: int, state: str = "running") -> RunFolder:
    run = RunFolder(root / "runs" / RUNS[index])
    run.root.mkdir(parents=True)
    array = {"name": ARRAY, "index": index, "size": 3, "at_once": 2}
    run.config.write_text(json.dumps({"slurm": {"array": array}}))
    run.desired.write_text(json.dumps({"v": 1, "state": state, "generation": 1}))
    return run


def calls(bin: Path, *programs: str) -> list[str]:
    lines = (bin / "calls").read_text().splitlines() if (bin / "calls").exists() else []
    return [line for line in lines if line.startswith(programs)]


def test_an_array_is_submitted_with_its_last_run_and_without_a_stopped_one(bin: Path) -> None:
    first, stopped = run_folder(bin, 0), run_folder(bin, 1, "stopped")
    assert submit(first).started is False
    array = open_array(stopped)
    assert array is not None
    with joined(array, stopped) as is_whole:
        assert not is_whole
    assert calls(bin) == []  # Slurm was asked for nothing yet
    assert submit(last := run_folder(bin, 2)).started
    assert calls(bin, "sbatch") == ["sbatch --parsable --hold --array=0,2%2 0/array.sh"]
    assert calls(bin, "update", "release") == [
        f"update jobid=42_2 jobname={RUNS[2]}",
        f"update jobid=42_0 jobname={RUNS[0]}",
        "release 42",
    ]
    assert open_array(first) is open_array(last) is None
    assert '"job_id": "42_2"' in (last.root / "jobs.jsonl").read_text()


def test_an_array_whose_submission_was_cut_short_is_not_submitted_again(bin: Path) -> None:
    runs = [run_folder(bin, index) for index in range(3)]
    (bin / "listed").write_text(held(0, 1, 2))
    assert [submit(run).started for run in runs] == [False, False, True]
    assert calls(bin, "sbatch --parsable --hold") == []
    assert calls(bin, "release") == ["release 42"]


def test_an_array_whose_tasks_can_not_be_named_leaves_nothing(bin: Path) -> None:
    (bin / "broken").touch()
    runs = [run_folder(bin, index) for index in range(3)]
    assert not submit(runs[0]).started and not submit(runs[1]).started
    with pytest.raises(SlurmError) as refused:
        submit(runs[2])
    assert refused.value.refusal["code"] == "JOB_REFUSED"
    assert calls(bin, "scancel") == ["scancel 42"]
    assert not list((bin / "arrays").iterdir())
