"""What becomes of a run whose job could not begin on its node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer_runtime.core.protocol.desired import Desired, DesiredState
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.slurm.submit import submit

NAME = "small-abc234"
_SBATCH = """\
#!/bin/sh
cd "${SLURM_SUBMIT_DIR:-${0%/*}}"
echo "$*" >>"${0%/*}/submitted"
test ! -e "${0%/*}/too-few" || case "$*" in *--exclude*) echo "not available" >&2; exit 1 ;; esac
wc -l <"${0%/*}/submitted"
"""
# Each job has ended as the last: on the node of its number, which lacks the run's folder.
_SQUEUE = f"""\
#!/bin/sh
last=$(wc -l <"${{0%/*}}/submitted" 2>/dev/null || echo 0)
for number in $(seq "$last"); do
    echo "$number|{NAME}|FAILED|1795476070|1795476071|node$number|RaisedSignal:53"
done
"""
_SCONTROL = """\
#!/bin/sh
echo "JobId=$4 JobState=FAILED ExitCode=0:53 BatchHost=node$4 NodeList=node$4"
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"sbatch": _SBATCH, "squeue": _SQUEUE, "scontrol": _SCONTROL}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    found = RunFolder(tmp_path / "runs" / NAME)
    (found.root / "logs").mkdir(parents=True)
    found.desired.write_text(json.dumps(Desired(DesiredState.RUNNING, 1).to_dict()))
    return found


def has_trained(run: RunFolder) -> None:
    folder = run.attempt(1).process.parent
    folder.mkdir(parents=True)
    (folder / "process.json").write_text("{}")


def test_a_run_that_has_trained_avoids_bad_nodes_until_three_jobs_in_a_row_have_found_one(
    programs: Path, run: RunFolder
) -> None:
    has_trained(run)
    avoided = []
    for _ in range(3):
        answer = submit(run)
        assert answer.started
        avoided.append(answer.avoided)
    assert avoided == [(), ("node1",), ("node1", "node2")]
    assert "--exclude=node1,node2" in (programs / "submitted").read_text()
    submit(run)
    given_up = json.loads(run.given_up.read_text())
    assert given_up["reason"] == "folder_missing"
    assert "each node (node1, node2, node3) of 3 jobs in a row" in given_up["message"]
    assert len((programs / "submitted").read_text().splitlines()) == 3


def test_a_cluster_with_too_few_other_nodes_is_given_the_job_all_the_same(
    programs: Path, run: RunFolder
) -> None:
    has_trained(run)
    (programs / "too-few").touch()
    assert [submit(run).avoided for _ in range(2)] == [(), ()]


def test_a_run_that_has_never_trained_is_given_up_at_once(programs: Path, run: RunFolder) -> None:
    submit(run)
    submit(run)
    message = json.loads(run.given_up.read_text())["message"]
    assert message.startswith(f"the node (node1) of job 1 has no {run.root}")
