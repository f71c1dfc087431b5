"""How several processes share a training: what is chosen, what it takes, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.errors.errors import TrainmasterError
from trainmaster.plan import (
    CorpusFacts,
    GpuFacts,
    HostFacts,
    ModelFacts,
    Plan,
    TorchFacts,
    plan,
)
from trainmaster.plan.architecture import Architecture, parameters
from trainmaster.plan.decisions.memory import GIB, Load, Sharing, memory
from trainmaster.plan.decisions.trainer_process import with_least_threads
from trainmaster.plan.spec import load_spec

Corpora = Callable[..., CorpusFacts]

_1B = Architecture("llama", 22, 32, 4, 2048, 5632, 32000, 2048)


def with_gpus(host: HostFacts, count: int, gib: float) -> HostFacts:
    gpus = tuple(
        GpuFacts(index=index, name="NVIDIA X", memory_gib=gib, memory_free_gib=gib)
        for index in range(count)
    )
    torch = TorchFacts(version="2.13.0+cu130", cuda="13.0", cuda_available=True, bf16_gpu=True)
    return host.model_copy(update={"gpus": gpus, "torch": torch, "disk_free_gib": 900.0})


def planned(framework: str, host: HostFacts, corpus: CorpusFacts, *sets: str) -> Plan:
    return plan(load_spec(_text(framework), sets), host, corpus)


def _text(framework: str) -> str:
    return (
        f"name: small\nframework: {framework}\nsteps: 20\n"
        "model: {n_layer: 22, n_head: 32, n_kv_head: 4, d_model: 2048, style: llama}\n"
        "data: {sources: [{name: main, path: /corpus}], seq_len: 1024}\nbatch: {tokens: 65536}\n"
    )


def small(framework: str, host: HostFacts, corpus: CorpusFacts, *sets: str) -> Plan:
    sizes = "model={n_layer: 2, n_head: 2, d_model: 64}"
    return planned(framework, host, corpus, sizes, "data.seq_len=128", "batch.tokens=8192", *sets)


def refusal(make: Callable[..., Plan], *arguments: Any) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as caught:
        make(*arguments)
    return caught.value


def reason_of(made: Plan, field: str) -> str:
    (found,) = [item.reason for item in made.decisions if item.field == field]
    return found


@pytest.mark.parametrize(
    ("strategy", "bytes_per_parameter"),
    [("single", 16), ("ddp", 20), ("zero1", 6 + 12 / 8), ("zero2", 6 + 12 / 8)],
)
def test_state_takes_what_the_strategy_leaves_to_each_process(
    strategy: str, bytes_per_parameter: float
) -> None:
    count = parameters(_1B)
    taken = memory(Load(_1B, count), 1, "bf16", "cuda", Sharing(strategy, 8))
    assert taken.state_gib == pytest.approx(count * bytes_per_parameter / GIB)


def test_parted_weights_leave_an_eighth_the_embeddings_and_two_layers() -> None:
    count = parameters(_1B)
    for strategy in ("fsdp", "zero3"):
        taken = memory(Load(_1B, count), 1, "bf16", "cuda", Sharing(strategy, 8))
        gathered = taken.state_gib * GIB - 16 * count / 8
        layer = 2048 * (2 * 2048 + 2 * 256 + 3 * 5632)
        # In half precision, with gradients; both embeddings are of one unit.
        assert gathered == pytest.approx(4 * (2 * 32000 * 2048 + 2 * layer))
    offloaded = memory(Load(_1B, count), 1, "bf16", "cuda", Sharing("zero3_offload", 8))
    assert offloaded.offloaded_gib == pytest.approx(16 * count / GIB)
    assert offloaded.state_gib < 1.2


@given(
    st.sampled_from(["single", "ddp", "zero2", "zero3"]),
    st.integers(1, 64),
    st.integers(1, 64),
    st.sampled_from(["bf16", "fp32"]),
)
def test_recomputing_never_takes_more_and_more_processes_never_more_state(
    strategy: str, processes: int, micro_batch: int, precision: str
) -> None:
    load = Load(_1B, parameters(_1B))

    def taken(count: int, recompute: bool) -> float:
        sharing = Sharing(strategy, count, recompute)
        return memory(load, micro_batch, precision, "cuda", sharing).total_gib

    assert taken(processes, True) < taken(processes, False)
    assert taken(processes + 1, False) <= taken(processes, False)


@pytest.mark.parametrize(
    ("framework", "gib", "strategy", "recompute"),
    [
        ("hf", 80, "ddp", False),
        ("hf", 18, "zero2", False),
        ("hf", 12, "zero3", False),
        ("hf", 7, "zero3", True),
        ("litgpt", 80, "ddp", False),
        ("litgpt", 18, "fsdp", False),
        ("litgpt", 7, "fsdp", True),
    ],
)
def test_the_first_strategy_that_fits_is_taken(
    cpu_host: HostFacts,
    one_source: Corpora,
    framework: str,
    gib: float,
    strategy: str,
    recompute: bool,
) -> None:
    made = planned(framework, with_gpus(cpu_host, 4, gib), one_source(), "compute.gpus=4")
    compute = made.config["compute"]
    assert (compute["strategy"], compute["activation_checkpointing"]) == (strategy, recompute)
    assert (compute["processes"], compute["gpus"]) == (4, 4)
    assert reason_of(made, "compute.strategy").endswith(".")
    assert made.estimates.memory_gib is not None
    assert made.estimates.memory_gib <= gib * 0.95 * 0.9


def test_what_fits_by_no_strategy_is_refused_with_its_sizes(
    cpu_host: HostFacts, one_source: Corpora
) -> None:
    host = with_gpus(cpu_host, 4, 4)
    error = refusal(planned, "hf", host, one_source(), "compute.gpus=4")
    assert error.code == "DOES_NOT_FIT"
    assert "in each of 4 processes" in error.message
    assert "zero3" in error.message


def test_a_strategy_that_is_asked_for_is_taken_and_held_to_the_memory(
    cpu_host: HostFacts, one_source: Corpora
) -> None:
    host = with_gpus(cpu_host, 4, 18)
    given = ("compute.gpus=4", "compute.strategy=fsdp")
    assert planned("hf", host, one_source(), *given).config["compute"]["strategy"] == "fsdp"
    error = refusal(planned, "hf", host, one_source(), "compute.gpus=4", "compute.strategy=ddp")
    assert error.code == "DOES_NOT_FIT"


def test_one_gpu_recomputes_activations_where_they_do_not_fit(
    cpu_host: HostFacts, one_source: Corpora
) -> None:
    host, fixed = with_gpus(cpu_host, 1, 18), "batch.micro_batch=2"
    made = planned("hf", host, one_source(), fixed)
    assert made.config["compute"]["activation_checkpointing"] is True
    assert made.config["compute"]["strategy"] == "single"
    kept = refusal(
        planned, "hf", host, one_source(), fixed, "compute.activation_checkpointing=false"
    )
    assert kept.code == "DOES_NOT_FIT"


@pytest.mark.parametrize("framework", ["trl", "litgpt"])
def test_an_adapters_state_is_not_shared(
    framework: str, cpu_host: HostFacts, one_source: Corpora
) -> None:
    host = with_gpus(cpu_host, 2, 18)
    weights = ModelFacts(path="/weights", parameters=1_100_000_000, **asdict(_1B))
    spec = load_spec(
        f"name: small\nframework: {framework}\nmethod: sft\nsteps: 20\nadapter: {{r: 16}}\n"
        "model: {path: /weights}\ncompute: {gpus: 2}\nbatch: {tokens: 65536}\n"
        "data: {sources: [{name: main, path: /corpus, format: jsonl}], seq_len: 1024}\n"
    )
    made = plan(spec, host, one_source(), None, weights)
    assert made.config["compute"]["strategy"] == "ddp"


def test_the_batch_over_several_processes_is_explained(
    cpu_host: HostFacts, one_source: Corpora
) -> None:
    made = small("hf", cpu_host, one_source(), "compute.processes=2", "batch.micro_batch=4")
    reason = "micro_batch 4 x accumulation 8 x 2 processes x seq_len 128 = 8,192 tokens."
    assert reason_of(made, "batch.accumulation") == reason
    assert made.config["batch"]["tokens"] == 8192
    assert made.config["derived"]["sequences_per_step"] == 64


def test_hosts_of_one_training_have_threads_for_the_one_with_the_fewest_cores(
    cpu_host: HostFacts, one_source: Corpora
) -> None:
    wide, narrow = (cpu_host.model_copy(update={"cores": cores}) for cores in (16.0, 6.0))
    for own, threads in ((), 3), (("compute.threads=7",), 7):
        sets = ("host=[a, b]", "compute.processes=2", *own)
        config = small("hf", wide, one_source(), *sets).config
        found = with_least_threads(load_spec(_text("hf"), sets), config, [narrow])
        assert found["compute"]["threads"] == threads


def test_processes_on_a_cpu_part_its_cores_and_memory(
    cpu_host: HostFacts, one_source: Corpora
) -> None:
    made = small("hf", cpu_host, one_source(), "compute.processes=2")
    compute = made.config["compute"]
    assert (compute["threads"], compute["processes"], compute["gpus"]) == (1, 2, 0)
    assert compute["strategy"] == "ddp"
    crowded = small("hf", cpu_host, one_source(), "compute.processes=4")
    assert crowded.config["compute"]["threads"] == 1
    assert any("compete" in warning for warning in crowded.warnings)
    alone = refusal(small, "hf", cpu_host, one_source(), "model.d_model=5120", "model.n_head=1")
    assert "5.4 GiB of host memory" in alone.message
    sets = ("compute.processes=2", "model.d_model=5120", "model.n_head=1")
    shared = refusal(small, "hf", cpu_host, one_source(), *sets)
    assert "2.4 GiB of host memory" in shared.message


def test_deepspeed_on_a_cpu_computes_in_fp32(cpu_host: HostFacts, one_source: Corpora) -> None:
    sets = ("compute.processes=2", "compute.strategy=zero2")
    assert small("hf", cpu_host, one_source(), *sets).config["precision"] == "fp32"
    error = refusal(small, "hf", cpu_host, one_source(), *sets, "precision=bf16")
    assert (error.code, error.field) == ("INVALID_VALUE", "precision")
    other = ("compute.processes=2", "compute.strategy=ddp")
    assert small("hf", cpu_host, one_source(), *other).config["precision"] == "bf16"


@pytest.mark.parametrize(
    ("framework", "sets", "code", "field"),
    [
        (
            "litgpt",
            ["compute.processes=2", "compute.strategy=fsdp"],
            "INVALID_VALUE",
            "compute.strategy",
        ),
        ("hf", ["compute.gpus=2"], "GPU_NOT_FOUND", "compute.gpus"),
        ("litgpt", ["compute.strategy=zero2"], "NOT_YET_SUPPORTED", "compute.strategy"),
        ("nanogpt", ["compute.processes=2"], "NOT_YET_SUPPORTED", "compute.processes"),
        ("nanogpt", ["compute.gpus=2"], "NOT_YET_SUPPORTED", "compute.gpus"),
        (
            "nanogpt",
            ["compute.activation_checkpointing=true"],
            "NOT_YET_SUPPORTED",
            "compute.activation_checkpointing",
        ),
        ("hf", ["compute.strategy=ddp"], "INVALID_VALUE", "compute.strategy"),
        (
            "hf",
            ["compute.processes=2", "compute.strategy=zero3_offload"],
            "INVALID_VALUE",
            "compute.strategy",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused(
    cpu_host: HostFacts,
    one_source: Corpora,
    framework: str,
    sets: list[str],
    code: str,
    field: str,
) -> None:
    error = refusal(small, framework, cpu_host, one_source(), *sets)
    assert (error.code, error.field) == (code, field)


def test_more_gpus_than_the_host_has_are_refused_with_how_many_there_are(
    cpu_host: HostFacts, one_source: Corpora
) -> None:
    host = with_gpus(cpu_host, 2, 80)
    error = refusal(small, "hf", host, one_source(), "compute.gpus=4")
    assert (error.code, error.field) == ("GPU_NOT_FOUND", "compute.gpus")
    assert "at most 2" in error.fix
    # To plan for them elsewhere is another thing.
    made = small("hf", host, one_source(), "compute.gpus=8", "compute.gpu=h100")
    assert (made.launchable, made.config["compute"]["processes"]) == (False, 8)
    processes = refusal(small, "hf", host, one_source(), "compute.gpus=2", "compute.processes=4")
    assert (processes.code, processes.field) == ("INVALID_VALUE", "compute.processes")


def test_of_more_gpus_those_with_the_most_free_memory_are_shown_to_the_trainer(
    cpu_host: HostFacts, one_source: Corpora
) -> None:
    host = with_gpus(cpu_host, 4, 80)
    busy = host.gpus[1].model_copy(update={"memory_free_gib": 3.0})
    host = host.model_copy(update={"gpus": (host.gpus[0], busy, *host.gpus[2:])})
    made = small("hf", host, one_source(), "compute.gpus=3")
    assert made.config["env"] == {"CUDA_VISIBLE_DEVICES": "0,2,3"}


def test_several_gpus_are_reckoned_faster_than_one(
    cpu_host: HostFacts, one_source: Corpora
) -> None:
    def tokens_per_s(gpus: int) -> float:
        made = planned("hf", cpu_host, one_source(), "compute.gpu=h100", f"compute.gpus={gpus}")
        assert made.estimates.tokens_per_s is not None
        return made.estimates.tokens_per_s

    assert tokens_per_s(8) == pytest.approx(8 * tokens_per_s(1), rel=0.01)
    assert 15 * tokens_per_s(1) < tokens_per_s(16) < 16 * tokens_per_s(1)


def test_several_hosts_share_the_batch_of_one(
    cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    host = with_gpus(cpu_host, 2, 80.0)
    sets = ("compute.gpus=2", "batch.micro_batch=4")
    one = small("hf", host, text_corpus, *sets).config
    two = small("hf", host, text_corpus, *sets, "host=[gpu1, gpu2]").config
    assert one["compute"]["nodes"] == 1 and one["compute"]["processes"] == 2
    assert two["compute"]["nodes"] == 2 and two["compute"]["processes"] == 4
    assert two["compute"]["gpus"] == 2  # of each
    assert two["compute"]["strategy"] == "ddp"
    assert two["batch"]["tokens"] == one["batch"]["tokens"]
    assert two["batch"]["accumulation"] == one["batch"]["accumulation"] // 2


def test_the_ranks_of_all_hosts_share_the_state(cpu_host: HostFacts, one_source: Corpora) -> None:
    host = with_gpus(cpu_host, 2, 12)
    sets = ("host=[gpu1, gpu2]", "compute.gpus=2")
    two = planned("hf", host, one_source(), *sets)
    compute = two.config["compute"]
    assert (compute["strategy"], compute["processes"], compute["nodes"]) == ("zero3", 4, 2)
    one = planned("hf", with_gpus(cpu_host, 4, 12), one_source(), "compute.gpus=4")
    assert two.estimates.memory_gib == one.estimates.memory_gib
    fsdp = planned("hf", host, one_source(), *sets, "compute.strategy=fsdp")
    assert fsdp.config["compute"]["strategy"] == "fsdp"
