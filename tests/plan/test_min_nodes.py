"""compute.min_nodes is refused where so many hosts could not keep a step's batch."""

from __future__ import annotations

import pytest
from support.plan.framework_plans import decided, planned, refusal

from trainmaster.plan import CorpusFacts, HostFacts

THREE = ("host=[a, b, c]", "data.seq_len=64", "batch.micro_batch=1")


def test_a_count_that_divides_the_step_is_taken(
    cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    sets = (*THREE, "batch.tokens=384", "compute.min_nodes=1")
    made = planned("hf", cpu_host, text_corpus, *sets)
    assert made.config["compute"]["min_nodes"] == 1
    assert made.config["compute"]["taking_part"] == [0, 1, 2]
    assert "1 or 2 or 3 hosts" in decided(made, "compute.min_nodes")[1]


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
def test_hosts_that_share_a_model_can_be_fewer(
    cpu_host: HostFacts, text_corpus: CorpusFacts, strategy: str
) -> None:
    sets = (*THREE, "batch.tokens=384", "compute.min_nodes=1", f"compute.strategy={strategy}")
    made = planned("hf", cpu_host, text_corpus, *sets)
    assert made.config["compute"]["strategy"] == strategy
    assert made.config["compute"]["min_nodes"] == 1


@pytest.mark.parametrize(
    ("sets", "message", "fix"),
    [
        (
            (*THREE, "batch.tokens=576", "compute.min_nodes=2"),
            "2 ranks can't share the 9 sequences of a step evenly",
            "one of: 1, 3;",
        ),
        ((*THREE, "compute.min_nodes=4"), "is 4, but the training has 3 hosts", "null, or lower"),
        (
            (*THREE, "compute.min_nodes=1", "compute.strategy=zero2", "optimizer.name=sgd"),
            "under zero2 only as many ranks can resume",
            "compute.strategy to ddp",
        ),
        (
            ("compute.min_nodes=1",),
            "but the training has one host",
            "list several machines in `host`",
        ),
    ],
)
def test_other_counts_are_refused_with_those_that_would_do(
    cpu_host: HostFacts, text_corpus: CorpusFacts, sets: tuple[str, ...], message: str, fix: str
) -> None:
    refused = refusal("hf", cpu_host, text_corpus, *sets)
    assert (refused.code, refused.field) == ("INVALID_VALUE", "compute.min_nodes")
    assert message in refused.message
    assert fix in refused.fix
