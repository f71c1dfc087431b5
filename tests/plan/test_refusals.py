from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainmaster.errors.errors import SpecError, TrainmasterError
from trainmaster.plan import CorpusFacts, HostFacts, plan
from trainmaster.plan.spec import TrainingSpec

SpecMaker = Callable[..., TrainingSpec]
Plannable = Callable[..., tuple[TrainingSpec, HostFacts, CorpusFacts]]
Corpora = Callable[..., CorpusFacts]


def refusal(*arguments: Any) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as caught:
        plan(*arguments)
    return caught.value


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"problem": "no such file or folder"}, "DATA_MISSING"),
        ({"files": 0, "size_bytes": 0, "tokens": 0}, "DATA_EMPTY"),
        ({"files": 1, "size_bytes": 0, "tokens": 1}, "DATA_EMPTY"),
        ({"files": 1, "size_bytes": 256, "tokens": 257}, "DATA_TOO_SHORT"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused(
    make_spec: SpecMaker, cpu_host: HostFacts, facts: dict[str, Any], code: str, one_source: Corpora
) -> None:
    error = refusal(make_spec(), cpu_host, one_source(**facts))
    assert (error.code, error.field) == (code, "data.sources[0].path")
    assert "/corpus" in error.message


def test_a_corpus_of_exactly_two_sequences_is_enough(
    make_spec: SpecMaker, cpu_host: HostFacts, one_source: Corpora
) -> None:
    corpus = one_source(files=1, size_bytes=257, tokens=258)
    assert plan(make_spec("steps=1"), cpu_host, corpus).config["steps"] == 1


@pytest.mark.parametrize(
    ("sets", "code", "field", "fix"),
    [
        (["model.vocab_size=256"], "VOCABULARY_TOO_SMALL", "model.vocab_size", "257"),
        (["model={preset: gpt2-xl}"], "DOES_NOT_FIT", "model", "a GPU such as"),
        (
            ["batch.tokens=1e9", "batch.micro_batch=5e4"],
            "DOES_NOT_FIT",
            "batch.micro_batch",
            "at most 1669",
        ),
        (
            ["model.d_model=512", "checkpoint.keep_every_steps=1"],
            "DISK_TOO_SMALL",
            "checkpoint.keep_every_steps",
            "keep_latest",
        ),
        (
            ["model.d_model=512", "checkpoint.keep_latest=5000"],
            "DISK_TOO_SMALL",
            "checkpoint.keep_latest",
            "Keep fewer",
        ),
        (["compute.gpus=1"], "GPU_NOT_FOUND", "compute.gpus", "compute.gpu"),
        (["compute.gpu=x1000"], "GPU_NOT_FOUND", "compute.gpu", "h100"),
        (["compute.gpu=h100", "compute.gpus=0"], "INVALID_VALUE", "compute.gpus", "Remove"),
        (["compute.gpu_memory_gib=80"], "INVALID_VALUE", "compute.gpu_memory_gib", "compute.gpu"),
        (["precision=fp16"], "INVALID_VALUE", "precision", "bf16"),
        (
            ["steps=null", "tokens=1e5", "schedule.warmup_steps=100"],
            "INVALID_VALUE",
            "schedule.warmup_steps",
            "at most 12",
        ),
    ],
)
def test_what_this_machine_cannot_carry_is_refused_with_what_it_could(
    plannable: Plannable, sets: list[str], code: str, field: str, fix: str
) -> None:
    error = refusal(*plannable(*sets))
    assert (error.code, error.field) == (code, field)
    assert fix in error.fix


def test_what_fits_by_the_advice_of_a_refusal_is_accepted(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    huge = ["batch.tokens=1e9", "batch.micro_batch=5e4"]
    advised = refusal(make_spec(*huge), cpu_host, text_corpus).fix.split()[5].rstrip(",")
    spec = make_spec(huge[0], f"batch.micro_batch={advised.replace(',', '')}")
    assert plan(spec, cpu_host, text_corpus).config["batch"]["micro_batch"] > 1000


def test_a_folder_for_runs_that_cannot_be_written_is_refused(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    error = refusal(make_spec(), cpu_host.model_copy(update={"root_writable": False}), text_corpus)
    assert error.code == "ROOT_NOT_WRITABLE"
    assert "/srv/trainmaster" in error.message


def test_a_spec_that_was_not_loaded_is_still_refused_what_is_not_built(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    spec = make_spec().model_copy(update={"tracking": {"tensorboard": True}})
    with pytest.raises(SpecError) as caught:
        plan(spec, cpu_host, text_corpus)
    assert caught.value.code == "NOT_YET_SUPPORTED"
