"""Partitions and time limits as Slurm's own programs print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_runtime.core.answers.slurm import NodeKind, PartitionAnswer
from trainer_runtime.core.decoding import Fields
from trainer_runtime.host.slurm.cluster import read_limit, read_partitions
from trainer_runtime.host.slurm.shared_disk import SharedDisk, read_disk

# Of Slurm 22.05, shortened to what is read and some of what is not.
PARTITIONS = """\
PartitionName=cpu AllowGroups=ALL AllowAccounts=ALL Default=YES MaxTime=01:00:00 \
MaxNodes=UNLIMITED \
Nodes=node[1-2] State=UP TotalCPUs=8 JobDefaults=(null) TRES=cpu=8,mem=8000M,node=2,billing=8
PartitionName=gpu AllowAccounts=physics,biology Default=NO MaxTime=UNLIMITED MaxNodes=12 State=UP
PartitionName=closed AllowAccounts=ALL Default=NO MaxTime=2-12:00:00 Nodes=(null) State=DOWN
"""
NODES = """\
node1|cpu*|4|4000|(null)|(null)
node2|cpu*|8+|16000+|gpu:a100:2(S:0-1),gpu:a100:1|fast,big
node2|gpu|8|16000|gpu:4|fast
a line of something else
"""


def test_partitions_have_their_limits_and_the_kinds_of_their_nodes() -> None:
    cpu, gpu, closed = read_partitions(PARTITIONS, NODES)
    assert cpu == PartitionAnswer(
        name="cpu",
        kinds=(
            NodeKind(1, 4, 4000),
            NodeKind(1, 8, 16000, {"a100": 3}, ("big", "fast")),
        ),
        is_default=True,
        limit_s=3600.0,
    )
    assert PartitionAnswer.of(Fields(cpu.to_dict())) == cpu
    assert (gpu.kinds[0].gpus, gpu.limit_s) == ({"": 4}, None)
    assert gpu.accounts == ("physics", "biology")
    assert (cpu.max_nodes, gpu.max_nodes) == (None, 12)
    assert (closed.nodes, closed.is_up, closed.limit_s) == (0, False, 60 * 3600.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 300.0),
        ("00:01:00", 60.0),
        ("1:30", 90.0),
        ("36:00:00", 129600.0),
        ("7-00:00:00", 604800.0),
        ("1-12", 129600.0),
        ("1-12:30", 131400.0),
        ("UNLIMITED", None),
        ("NONE", None),
        ("", None),
    ],
)
def test_a_time_limit_is_read_in_each_form_that_slurm_writes(
    text: str, seconds: float | None
) -> None:
    assert read_limit(text) == seconds


@pytest.mark.parametrize(
    ("mounted", "locks"),
    [
        ("lustre 10.0.0.1@tcp:/work rw,flock,lazystatfs", True),
        ("lustre 10.0.0.1@tcp:/work rw,localflock", False),
        ("lustre 10.0.0.1@tcp:/work rw,lazystatfs", False),
        ("nfs4 server:/home rw,vers=4.2,local_lock=none", True),
        ("nfs server:/home rw,vers=3,local_lock=all", False),
        ("beegfs beegfs_nodev rw,cfgFile={settings}", False),
        ("gpfs work rw", None),
    ],
)
def test_a_disk_whose_locks_are_each_nodes_own_is_known_by_its_mount(
    mounted: str, locks: bool | None, tmp_path: Path
) -> None:
    settings = tmp_path / "client.conf"
    settings.write_text("tuneFileCacheType = buffered\ntuneUseGlobalFileLocks = false\n")
    line = f"90 1 0:51 / /work rw,noatime shared:5 - {mounted.format(settings=settings)}\n"
    found = read_disk("24 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + line, "0:51")
    assert found == SharedDisk(mounted.split(maxsplit=1)[0], locks=locks)
    settings.write_text("tuneUseGlobalFileLocks = true\n")
    assert read_disk(line, "0:52") is None
    again = read_disk(line, "0:51")
    assert again is not None and again.locks is (True if "beegfs" in mounted else locks)
