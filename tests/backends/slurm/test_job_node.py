"""The node that is planned for, in partitions whose nodes differ."""

from __future__ import annotations

import pytest

from trainer_runtime.host.slurm.cluster import read_partitions
from trainmaster.backends.slurm.job_node import node_for
from trainmaster.errors.errors import HostError
from trainmaster.store.host_record import HostRecord

_NODES = """\
big|mixed|128|1000000|(null)|cpu
a1|mixed|32|250000|gpu:a100:4(S:0-1),nvme:1|a100,ib
a2|mixed|32|250000|gpu:a100:4|a100
a3|mixed|64|500000|gpu:a100:4|a100
v1|mixed|40|380000|gpu:v100:8|v100,ib
"""
[MIXED] = read_partitions("PartitionName=mixed Default=YES MaxTime=UNLIMITED State=UP", _NODES)
[CPUS] = read_partitions("PartitionName=mixed State=UP", _NODES.splitlines()[0])


def record(**options: str) -> HostRecord:
    return HostRecord("cluster", "login", launcher="slurm", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "gpus", "gpu", "cpus", "nodes", "several"),
    [
        ({}, 8, "v100", 40, (5, 1), True),
        ({"gres": "gpu:a100"}, 4, "a100", 32, (5, 3), False),
        ({"gres": "nvme:1,gpu:a100"}, 4, "a100", 32, (5, 3), False),
        ({"constraint": "a100"}, 4, "a100", 32, (3, 3), False),
        ({"constraint": "a100&ib"}, 4, "a100", 32, (1, 1), False),
        ({"constraint": "a100|v100"}, 8, "v100", 40, (5, 1), True),
        ({"constraint": "cpu"}, 0, None, 128, (1, 0), False),
    ],
)
def test_a_job_is_planned_for_a_node_that_is_there(
    options: dict[str, str],
    gpus: int,
    gpu: str | None,
    cpus: int,
    nodes: tuple[int, int],
    several: bool,
) -> None:
    node = node_for(record(**options), MIXED)
    assert (node.gpus, node.gpu, node.cpus) == (gpus, gpu, cpus)
    assert ((node.nodes, node.gpu_nodes), node.is_one_of_several) == (nodes, several)
    assert node.memory_mib == {128: 1000000, 32: 250000, 40: 380000}[cpus]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gres": "gpu:h100"}, "types there: a100, v100"),
        ({"gres": "gpu:a100", "constraint": "v100"}, "with v100 has GPUs of the type 'a100'"),
        ({"constraint": "h100"}, "features there: a100, cpu, ib, v100"),
    ],
)
def test_what_no_node_has_is_refused_with_what_there_is(
    options: dict[str, str], words: str
) -> None:
    with pytest.raises(HostError, match=words):
        node_for(record(**options), MIXED)


def test_a_refused_option_is_changed_to_one_that_is_there() -> None:
    with pytest.raises(HostError) as refused:
        node_for(record(constraint="h100"), MIXED)
    said = "Change it: `trainmaster hosts set cluster --constraint FEATURES`."
    assert refused.value.fix == said


def test_an_option_of_which_nothing_is_there_is_left_out() -> None:
    with pytest.raises(HostError) as refused:
        node_for(record(gres="gpu:a100"), CPUS)
    assert refused.value.fix == "Change it: `trainmaster hosts set cluster --gres ''`."


def test_a_node_without_gpus_is_planned_for_where_none_has_any() -> None:
    assert node_for(record(), CPUS).gpus == 0
