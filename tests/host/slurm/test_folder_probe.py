"""What is tried before a job is queued, by a program that does what `srun` would on one node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.slurm.folder_probe import (
    forget_partition,
    known_partitions,
    note_partition,
    try_folder,
)
from trainer_runtime.host.slurm.programs import SlurmError

# Notes how it was called. `busy-N`: N nodes are not free. `hidden`: the node has no such folder.
SRUN = """\
#!/bin/sh
bin=${0%/*}
echo "$*" >>"$bin/calls"
while test "$1" != /bin/sh; do
    case "$1" in --nodes=*) nodes=${1#--nodes=} ;; esac
    shift
done
if test -e "$bin/busy-$nodes"; then
    echo "srun: error: Unable to allocate resources: Requested nodes are busy" >&2
    exit 1
fi
folder=$4
test ! -e "$bin/hidden" || folder=/nowhere
SLURMD_NODENAME=node2 SLURM_PROCID=0 exec /bin/sh -c "$3" "$folder"
"""


@pytest.fixture
def bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "srun").write_text(SRUN)
    (folder / "srun").chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def a_run(tmp_path: Path, nodes: int = 1) -> RunFolder:
    run = RunFolder(tmp_path / "root/runs/small-abc234")
    run.root.mkdir(parents=True)
    asked = {"partition": "cpu", "account": "physics", "qos": None, "constraint": "fast&big"}
    config = {"slurm": asked, "compute": {"nodes": nodes, "processes": nodes}}
    run.config.write_text(json.dumps(config))
    return run


def calls(bin: Path) -> list[str]:
    path = bin / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_a_folder_that_a_node_lacks_is_refused_with_the_node(bin: Path, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    (bin / "hidden").touch()
    with pytest.raises(SlurmError, match="Compute node node2 has no ") as refused:
        try_folder(run)
    assert refused.value.refusal["code"] == "FOLDER_NOT_SHARED"
    assert known_partitions(run.host_root) == []


def test_a_folder_that_a_node_can_not_write_is_refused(bin: Path, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    (run.root / ".probe-0").mkdir()
    with pytest.raises(SlurmError, match="but can't write there"):
        try_folder(run)


def test_a_folder_that_nodes_have_is_tried_once(bin: Path, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    assert try_folder(run) is None
    assert try_folder(run) is None
    [call] = calls(bin)
    assert "--partition=cpu --account=physics --constraint=fast&big /bin/sh" in call
    assert [path.name for path in run.root.iterdir()] == ["config.json"]
    forget_partition(run)
    assert known_partitions(run.host_root) == []


def test_a_partition_that_a_job_has_begun_in_is_not_tried(
    bin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path)
    monkeypatch.setenv("SLURM_JOB_PARTITION", "cpu")
    note_partition(run)
    assert try_folder(run) is None
    assert calls(bin) == []


def test_fewer_nodes_are_tried_where_not_all_are_free(bin: Path, tmp_path: Path) -> None:
    run = a_run(tmp_path, nodes=2)
    (bin / "busy-2").touch()
    assert try_folder(run) is None
    assert ["--nodes=2" in call for call in calls(bin)] == [True, False]


def test_where_no_node_is_free_it_says_so(bin: Path, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    (bin / "busy-1").touch()
    assert "Requested nodes are busy" in str(try_folder(run))
    assert known_partitions(run.host_root) == []
