"""The batch script of a run on a cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.plan import CorpusFacts, GpuFacts, HostFacts, plan
from trainmaster.plan.facts import SlurmFacts
from trainmaster.plan.job_script import job_files
from trainmaster.plan.render import render
from trainmaster.plan.spec import load_spec
from trainmaster.words.assets import find_assets
from trainmaster.words.errors import UsageError

_GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "render" / "job.sh"
_UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"
SPEC = """\
name: small
framework: hf
model: {n_layer: 4, n_head: 4, d_model: 128}
data: {sources: [{name: main, path: /corpus}]}
compute: {gpus: 1}
steps: 200
"""


def test_the_script_of_a_gpu_job_is_the_golden_one(
    gpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    slurm = SlurmFacts(
        partition="long",
        account="physics",
        constraint="fast&big",
        gres="gpu:a100,lustre:1",
        limit_s=86400.0,
        cpus=64,
        memory_mib=512000,
        gpus=8,
    )
    gpus = tuple(
        GpuFacts(index=index, name="a100", memory_gib=80.0, memory_free_gib=80.0, capability=8.0)
        for index in range(8)
    )
    host = gpu_host.model_copy(update={"slurm": slurm, "gpus": gpus})
    bundle = render(plan(load_spec(SPEC), host, text_corpus), "small-abc234", find_assets())
    if _UPDATE:
        _GOLDEN.write_bytes(bundle.files["job.sh"])
    assert bundle.files["job.sh"].decode() == _GOLDEN.read_text()


@pytest.mark.parametrize("value", ["a b", "a\n#SBATCH --wrap=x", "$(id)", "a;b", "", "x" * 201])
def test_no_second_directive_and_no_shell_text_comes_into_a_script(value: str) -> None:
    section = {"partition": "cpu", "limit_minutes": value, "cpus": 1}
    with pytest.raises(UsageError) as refused:
        job_files({"slurm": section}, "small-abc234", find_assets())
    assert refused.value.code == "BAD_ARGUMENT"
