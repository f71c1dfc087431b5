"""A resume on another number of ranks keeps each step's sequences, or is refused with the counts
that would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.plan.framework_plans import planned

from trainer_runtime.core.diagnosis.remedies import value_at
from trainer_runtime.core.policy.patch import apply_sets
from trainmaster.errors.errors import SpecError
from trainmaster.plan import CorpusFacts, HostFacts
from trainmaster.plan.changes.ranks import sets_of_batch

Config = dict[str, Any]
BATCH = ("data.seq_len=64", "batch.micro_batch=2", "batch.tokens=768")  # 12 sequences a step


class Resumed:
    """A run of two ranks, and the plans of its resumes."""

    def __init__(self, host: HostFacts, corpus: CorpusFacts) -> None:
        self._host, self._corpus = host, corpus
        self.newest = self.plan(["compute.processes=2"])

    def plan(self, sets: Sequence[str]) -> Config:
        return planned("hf", self._host, self._corpus, *BATCH, *sets).config

    def sets(self, *asked: str, newest: Config | None = None, **given: Any) -> list[str]:
        return sets_of_batch(asked, newest or self.newest, self.plan(asked), **given)

    def batch(self, *asked: str, newest: Config | None = None) -> tuple[int, ...]:
        """Ranks, micro-batch and accumulation of the resume."""
        config = self.plan([*asked, *self.sets(*asked, newest=newest)])
        fields = ("compute.processes", "batch.micro_batch", "batch.accumulation")
        return tuple(value_at(config, field) for field in fields)

    def refusal(self, *asked: str, newest: Config | None = None, **given: Any) -> SpecError:
        with pytest.raises(SpecError) as refused:
            self.sets(*asked, newest=newest, **given)
        return refused.value


@pytest.fixture
def resumed(cpu_host: HostFacts, text_corpus: CorpusFacts) -> Resumed:
    return Resumed(cpu_host, text_corpus)


@pytest.mark.parametrize(
    ("asked", "batch"),
    [
        (["compute.processes=1"], (1, 2, 6)),
        (["compute.processes=3"], (3, 2, 2)),
        (["compute.processes=4"], (4, 1, 3)),  # 3 sequences each, of which 2 are not a divisor
        (["compute.processes=12"], (12, 1, 1)),
        (["compute.processes=1", "batch.micro_batch=4"], (1, 4, 3)),
    ],
)
def test_every_step_keeps_its_sequences(
    resumed: Resumed, asked: list[str], batch: tuple[int, ...]
) -> None:
    assert resumed.batch(*asked) == batch


def test_the_batch_that_the_host_found_to_fit_is_the_one_kept(resumed: Resumed) -> None:
    halved = apply_sets(resumed.newest, {"batch.micro_batch": 1, "batch.accumulation": 6})
    assert resumed.batch("compute.processes=1", newest=halved) == (1, 1, 12)


@pytest.mark.parametrize(
    "asked", [["steps=90"], ["compute.processes=2"], ["compute.processes=1", "batch.tokens=640"]]
)
def test_what_leaves_the_ranks_alone_or_asks_for_another_batch_adds_nothing(
    resumed: Resumed, asked: list[str]
) -> None:
    assert resumed.sets(*asked) == []


def test_ranks_that_cannot_share_a_step_are_refused_with_those_that_can(resumed: Resumed) -> None:
    refused = resumed.refusal("compute.processes=5")
    assert (refused.code, refused.field) == ("INVALID_VALUE", "compute.processes")
    assert "12 sequences, which 5 ranks can't share evenly" in refused.message
    assert "one of: 1, 2, 3, 4, 6, 12;" in refused.fix
    of_pieces = resumed.refusal("compute.processes=4", "batch.micro_batch=4")
    assert "in micro-batches of 4" in of_pieces.message
    assert "one of: 1, 3;" in of_pieces.fix


def test_kto_keeps_its_micro_batch_whose_examples_it_compares(resumed: Resumed) -> None:
    kto = {**resumed.newest, "method": "kto"}
    assert "one of: 1, 2, 3, 6;" in resumed.refusal("compute.processes=4", newest=kto).fix


@pytest.mark.parametrize("strategy", ["fsdp", "zero1", "zero2", "zero3"])
def test_a_sharded_model_keeps_its_strategy_on_a_single_rank(
    resumed: Resumed, strategy: str
) -> None:
    sharded = apply_sets(resumed.newest, {"compute.strategy": strategy})
    sets = resumed.sets("compute.processes=1", newest=sharded)
    assert sets == [f"compute.strategy={strategy}", "batch.tokens=768", "batch.micro_batch=2"]


def test_litgpt_continues_whole_where_one_rank_has_room(resumed: Resumed) -> None:
    sharded = apply_sets(resumed.newest, {"compute.strategy": "fsdp"}) | {"framework": "litgpt"}
    assert not any(
        "strategy" in item for item in resumed.sets("compute.processes=1", newest=sharded)
    )


def test_a_strategy_that_reads_none_of_the_checkpoints_is_refused(resumed: Resumed) -> None:
    refused = resumed.refusal("compute.processes=4", "compute.strategy=zero2")
    assert refused.field == "compute.strategy"
    assert "zero2, which can't resume what ddp has saved" in refused.message


def test_a_program_is_started_with_another_number_once_it_is_said_to_take_any(
    resumed: Resumed,
) -> None:
    program = {**resumed.newest, "framework": "script", "script": {"command": ["train"]}}
    elastic = {**program, "script": {"command": ["train"], "elastic": True}}

    def sets(planned: Config) -> list[str]:
        return sets_of_batch(
            ["compute.processes=4"],
            program,
            apply_sets(planned, {"compute.processes": 4}),
        )

    assert sets(elastic) == []
    with pytest.raises(SpecError, match="is what the program was started with") as refused:
        sets(program)
    assert "--set script.elastic=true" in str(refused.value.fix)


def test_what_deepspeed_cannot_convert_keeps_its_ranks(resumed: Resumed) -> None:
    sharded = apply_sets(resumed.newest, {"compute.strategy": "zero2"})
    of_sgd = apply_sets(sharded, {"optimizer.name": "sgd"})
    adapted = {**sharded, "adapter": {"r": 8, "alpha": 16.0, "quantize": None}}
    quantized = {**adapted, "adapter": {**adapted["adapter"], "quantize": "nf4"}}
    one = "compute.processes=1"
    assert "for sgd under zero2" in resumed.refusal(one, newest=of_sgd).message
    assert "a model in 4 bits under zero2" in resumed.refusal(one, newest=quantized).message
    assert "compute.strategy=zero2" in resumed.sets(one, newest=adapted)


def test_a_run_whose_ranks_are_fixed_is_refused_by_its_reason(resumed: Resumed) -> None:
    one = "compute.processes=1"
    on_gpu = apply_sets(resumed.newest, {"compute.device": "cuda"})
    assert "on cuda continue on cpu" in resumed.refusal(one, newest=on_gpu).message
    assert "can't change on cluster" in resumed.refusal(one, lends_time="cluster").message
