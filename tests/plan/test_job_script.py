"""The batch script of a run on a cluster."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from trainmaster.errors.errors import PlanError, SpecError, UsageError
from trainmaster.home.assets import find_assets
from trainmaster.plan import CorpusFacts, GpuFacts, HostFacts, Plan, plan
from trainmaster.plan.facts import SlurmFacts
from trainmaster.plan.job_script import job_files
from trainmaster.plan.render import render
from trainmaster.plan.spec import load_spec

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
        modules="cuda/12.4,python/3.11",
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
    planned = plan(load_spec(SPEC), host, text_corpus)
    assert planned.config["compute"]["threads"] == planned.config["slurm"]["cpus"] == 8
    bundle = render(planned, "small-abc234", find_assets())
    if _UPDATE:
        _GOLDEN.write_bytes(bundle.files["job.sh"])
    assert bundle.files["job.sh"].decode() == _GOLDEN.read_text()


def on_nodes(host: HostFacts, corpus: CorpusFacts, count: int, **facts: object) -> Plan:
    given = {"cpus": 64, "memory_mib": 512000, "nodes": 4, **facts}
    slurm = SlurmFacts.model_validate({"partition": "long", **given})
    compute = f"compute={{gpus: 0, processes: 2, threads: 3, nodes: {count}}}"
    return plan(load_spec(SPEC, [compute]), host.model_copy(update={"slurm": slurm}), corpus)


def test_the_script_of_several_nodes_asks_for_what_each_of_them_needs(
    cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    one, three = (on_nodes(cpu_host, text_corpus, nodes) for nodes in (1, 3))
    assert (three.config["compute"]["nodes"], three.config["compute"]["processes"]) == (3, 6)
    alike = {"memory_mib": three.config["slurm"]["memory_mib"]}  # that of a smaller batch
    assert three.config["slurm"] == {**one.config["slurm"], **alike}
    reasons = {decision.reason for decision in three.decisions}
    assert "2 on each of 3 nodes of each job." in reasons
    script = render(three, "small-abc234", find_assets()).files["job.sh"].decode()
    lines = script.splitlines()
    assert "#SBATCH --nodes=3" in lines and "#SBATCH --ntasks-per-node=1" in lines
    assert "#SBATCH --ntasks=1" not in lines and "#SBATCH --cpus-per-task=6" in lines


@pytest.mark.parametrize("node_mib", [512000, 2100])
def test_the_memory_of_a_job_without_gpus_is_what_its_reason_says(
    cpu_host: HostFacts, text_corpus: CorpusFacts, node_mib: int
) -> None:
    planned = on_nodes(cpu_host, text_corpus, 1, memory_mib=node_mib)
    [decided] = [one for one in planned.decisions if one.field == "slurm.memory_mib"]
    found = re.match(r"1\.5 times the estimate of (\d+) MiB, and 2 GiB", decided.reason)
    assert found is not None
    assert decided.value == min(node_mib, int(1.5 * int(found[1])) + 2048)
    assert ("cut to all that a node has" in decided.reason) == (decided.value == node_mib)


def test_nodes_without_gpus_count_for_a_training_without(
    cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    assert on_nodes(cpu_host, text_corpus, 3, gpus=8, gpu_nodes=1).config["compute"]["nodes"] == 3


@pytest.mark.parametrize(
    ("facts", "words"),
    [({"nodes": 2}, "long has 2"), ({"max_nodes": 2}, "long gives a job at most 2")],
)
def test_more_nodes_than_a_partition_gives_are_refused(
    cpu_host: HostFacts, text_corpus: CorpusFacts, facts: dict[str, int], words: str
) -> None:
    with pytest.raises(PlanError, match=words) as refused:
        on_nodes(cpu_host, text_corpus, 3, **facts)
    assert (refused.value.code, refused.value.field) == ("PARTITION_TOO_SMALL", "compute.nodes")


@pytest.mark.parametrize(("resource", "refuses"), [("cpu", True), ("gres/gpu", False)])
def test_an_account_without_hours_is_refused_where_the_job_needs_them(
    cpu_host: HostFacts, text_corpus: CorpusFacts, resource: str, refuses: bool
) -> None:
    facts = {"used_up": (("account physics", resource, 6000),)}
    if not refuses:
        on_nodes(cpu_host, text_corpus, 1, **facts)
        return
    with pytest.raises(PlanError, match="account physics has used up its 100 hours") as refused:
        on_nodes(cpu_host, text_corpus, 1, **facts)
    assert refused.value.code == "HOURS_USED_UP"
    assert "`trainmaster hosts set box --account NAME`" in refused.value.fix


def test_nodes_of_a_single_machine_and_a_cluster_in_a_list_are_refused(
    cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    with pytest.raises(PlanError, match="box is a single machine") as refused:
        plan(load_spec(SPEC, ["compute={nodes: 2}"]), cpu_host, text_corpus)
    assert (refused.value.code, refused.value.field) == ("INVALID_VALUE", "compute.nodes")
    slurm = cpu_host.model_copy(update={"slurm": SlurmFacts(partition="long")})
    spec = load_spec(SPEC, ["host=[box, other]", "compute={gpus: 0}"])
    with pytest.raises(PlanError, match="box among several, which is a cluster"):
        plan(spec, slurm, text_corpus)


def test_nodes_have_to_be_as_many_as_the_hosts_that_are_listed() -> None:
    load_spec(SPEC, ["host=[a, b]", "compute.nodes=2"])
    for nodes in (1, 3):
        with pytest.raises(SpecError, match="`host` lists 2 machines") as refused:
            load_spec(SPEC, ["host=[a, b]", f"compute.nodes={nodes}"])
        assert refused.value.field == "compute.nodes"


def test_a_job_asks_for_the_type_of_gpu_and_the_time_that_it_is_planned_for(
    gpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    slurm = SlurmFacts(partition="mixed", gpus=1, gpu_type="a100", time="90m", limit_s=86400.0)
    planned = plan(load_spec(SPEC), gpu_host.model_copy(update={"slurm": slurm}), text_corpus)
    assert planned.config["slurm"]["gres"] == "gpu:a100:1"
    assert planned.config["slurm"]["limit_minutes"] <= 90
    said = {decision.field: decision.reason for decision in planned.decisions}
    assert "GPUs of several types" in said["slurm.gpu"]
    assert "the host one of 1 h 30 min" in said["slurm.limit_minutes"]
    assert said["slurm.limit_minutes"].startswith("For about 0.16 s of training;")


def test_a_first_save_has_the_time_that_a_slow_disk_takes(
    gpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    def planned(limit_s: float, model: str) -> Plan:
        facts = SlurmFacts(partition="long", cpus=64, gpus=1, limit_s=limit_s)
        host = gpu_host.model_copy(update={"slurm": facts})
        return plan(load_spec(SPEC, [f"model={model}", "checkpoint.every=50"]), host, text_corpus)

    small, large = (
        planned(86400.0, f"{{preset: gpt2-{size}, vocab_size: 50304}}") for size in ("124m", "774m")
    )
    for made in (small, large):
        save_s = round(12 * (made.estimates.parameters or 0) / 100e6, 1)
        assert (made.config["slurm"]["save_s"], made.config["slurm"]["margin_s"]) == (save_s, 60.0)
    assert small.config["slurm"]["signal_s"] == 60
    asked_s = large.config["slurm"]["signal_s"]
    assert asked_s == int(20 + 2 * large.config["slurm"]["save_s"]) and asked_s > 200
    script = render(large, "small-abc234", find_assets()).files["job.sh"].decode()
    assert f"#SBATCH --signal=B:USR1@{asked_s}\n" in script
    short = planned(120.0, "{preset: gpt2-774m, vocab_size: 50304}").config["slurm"]
    assert (short["save_s"], short["signal_s"]) == (30.0, None)  # half of it is left to train


@pytest.mark.parametrize("value", ["a b", "a\n#SBATCH --wrap=x", "$(id)", "a;b", "", "x" * 201])
def test_no_second_directive_and_no_shell_text_comes_into_a_script(value: str) -> None:
    section = {"partition": "cpu", "limit_minutes": value, "cpus": 1}
    with pytest.raises(UsageError) as refused:
        job_files({"slurm": section}, "small-abc234", find_assets())
    assert refused.value.code == "BAD_ARGUMENT"


@pytest.mark.parametrize("name", ["a b", "$(id)", "a;b", "-x", "", "a\nb", "x" * 101])
def test_a_module_is_a_name_and_no_shell_text(name: str) -> None:
    section = {"partition": "cpu", "limit_minutes": 10, "cpus": 1, "modules": [name]}
    with pytest.raises(UsageError) as refused:
        job_files({"slurm": section}, "small-abc234", find_assets())
    assert refused.value.field == "--module"
