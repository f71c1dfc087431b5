"""Length of sequences and size of steps by a model's size, and what departs from them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainmaster.plan import CorpusFacts, HostFacts, Plan, plan
from trainmaster.plan.spec import TrainingSpec

_LARGE = ("model.n_layer=12", "model.n_head=12", "model.d_model=768")


_GPUS = ("framework=hf", "compute.gpu=h100", "compute.gpus=8")


@pytest.fixture
def made(
    make_spec: Callable[..., TrainingSpec],
    cpu_host: HostFacts,
    one_source: Callable[..., CorpusFacts],
) -> Callable[..., Plan]:
    corpus = one_source(size_bytes=10**12, tokens=10**12)
    host = cpu_host.model_copy(update={"memory_available_gib": 60.0, "disk_free_gib": 1e6})
    return lambda *sets: plan(make_spec(*sets), host, corpus)


def values(plan: Plan) -> tuple[int, int]:
    return plan.config["data"]["seq_len"], plan.config["batch"]["tokens"]


@pytest.mark.parametrize(
    ("sets", "chosen"),
    [
        ((), (128, 8192)),
        ((*_LARGE,), (1024, 1 << 19)),
        ((*_LARGE, "data.seq_len=512"), (512, 1 << 19)),
        ((*_LARGE, "batch.tokens=512"), (512, 512)),
        ((*_LARGE, "steps=null", "tokens=100M"), (1024, 1 << 16)),
        ((*_GPUS, "model={preset: llama-7b}"), (2048, 1 << 22)),
        ((*_GPUS, "model={preset: llama-2-7b}"), (4096, 1 << 22)),
        ((*_GPUS, "model={preset: pythia-1.4b}"), (2048, 1 << 20)),
    ],
)
def test_a_large_model_is_trained_as_published_ones_of_its_size(
    made: Callable[..., Plan], sets: tuple[str, ...], chosen: tuple[int, int]
) -> None:
    assert values(made(*sets)) == chosen


def test_a_chosen_value_comes_with_its_source(made: Callable[..., Plan]) -> None:
    decisions = {item.field: item for item in made(*_LARGE).decisions}
    assert "Radford" in str(decisions["data.seq_len"].source)
    assert "Brown" in str(decisions["batch.tokens"].source)


@pytest.mark.parametrize(
    ("sets", "named"),
    [
        ((*_LARGE,), []),
        ((*_LARGE, "data.seq_len=128"), ["data.seq_len is 128"]),
        ((*_LARGE, "data.seq_len=256", "batch.tokens=8192"), ["batch.tokens is 8,192"]),
        ((*_LARGE, "batch.tokens=4M"), ["batch.tokens is 4,000,000"]),
        (("data.seq_len=64",), []),
    ],
)
def test_a_value_far_from_the_usual_one_is_a_warning(
    made: Callable[..., Plan], sets: tuple[str, ...], named: list[str]
) -> None:
    warnings = [text for text in made(*sets).warnings if "are usual" in text]
    assert [text.partition(";")[0] for text in warnings] == named
