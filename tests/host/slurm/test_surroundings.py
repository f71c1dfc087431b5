"""Modules, quotas and accounts as a cluster's programs print them."""

from __future__ import annotations

import pytest

from trainer_runtime.core.answers.slurm import QuotaAnswer
from trainer_runtime.host.slurm.cluster import (
    missing_modules,
    of_training,
    read_accounts,
    read_modules,
    read_quota,
)

# Of Environment Modules 5.2 and of Lmod.
MODULES = """\
/usr/share/modules/modulefiles:
cuda/12.4 <L>
cuda/11.8
gcc/13.2(default)
python/3.11(default)
/apps/modules/all:
PyTorch/2.6.0-foss-2024a
Miniconda3/24.1 (D)
tools/
No module(s) or extension(s) found!
"""
QUOTA = """\
Disk quotas for user me (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
server:/home   10485760* 9437184 20971520   6days     120       0    1000
"""
LUSTRE = " /lustre 524288 0 1048576 - 77 0 0 -\n"
NO_LIMIT = " /lustre 524288 0 0 - 77 0 0 -\n"
ACCOUNTS = "physics||long,normal\nbiology|gpu|\nphysics||long,normal\n"


def test_modules_are_read_without_their_marks() -> None:
    names = read_modules(MODULES)
    assert names[:4] == ["cuda/12.4", "cuda/11.8", "gcc/13.2", "python/3.11"]
    training = ["cuda/12.4", "cuda/11.8", "python/3.11", "PyTorch/2.6.0-foss-2024a"]
    assert of_training(names) == [*training, "Miniconda3/24.1"]
    assert missing_modules(["cuda", "gcc/13.2", "cuda/12", "nccl"], names) == ["cuda/12", "nccl"]
    assert missing_modules(["cuda"], None) == ["cuda"]


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        (QUOTA, QuotaAnswer(10485760, 20971520, 120, 1000)),
        (LUSTRE, QuotaAnswer(524288, 1048576, 77, None)),
        (NO_LIMIT, None),
        ("Disk quotas for user me (uid 1000): none\n", None),
    ],
)
def test_a_quota_is_read_where_there_is_one(text: str, quota: QuotaAnswer | None) -> None:
    assert read_quota(text) == quota


def test_accounts_are_read_with_their_qos() -> None:
    assert read_accounts(ACCOUNTS) == ["physics (qos long,normal)", "biology in gpu"]
