"""What an account has used up, by what Slurm's controller shows of it."""

from __future__ import annotations

import pytest

from trainer_runtime.core.answers.slurm import UsedUp
from trainer_runtime.host.slurm.cluster import read_used_up

_NONE = "mem=N(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0)"
_RECORD = (
    "ClusterName=one Account=physics UserName= Partition= Priority=0 ID=3 ParentAccount=root(1) "
    "GrpJobs=N(0) GrpWall={wall} GrpTRES=cpu=8(8) GrpTRESMins={minutes} "
    "GrpTRESRunMins=cpu=N(480),gres/gpu=N(0) MaxJobs= MaxWallPJ="
)


@pytest.mark.parametrize(
    ("minutes", "wall", "resources"),
    [
        (f"cpu=N(9000),{_NONE}", "N(0.00)", []),
        (f"cpu=6000(5999),{_NONE}", "600(599.50)", []),
        (f"cpu=6000(6000),{_NONE},gres/gpu=60(71)", "N(0.00)", ["cpu", "gres/gpu"]),
        (f"cpu=0(0),{_NONE}", "600(600.00)", ["cpu", "wall"]),
    ],
)
def test_a_resource_is_used_up_once_its_minutes_are(
    minutes: str, wall: str, resources: list[str]
) -> None:
    found = list(read_used_up("account physics", _RECORD.format(minutes=minutes, wall=wall)))
    assert [one.resource for one in found] == resources
    assert all(one.whose == "account physics" and one.used >= one.limit for one in found)
    if "gres/gpu" in resources:
        assert found[1] == UsedUp("account physics", "gres/gpu", 71, 60)
