"""Which style and optimizer a new model gets, where the spec leaves them open."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainmaster.plan import CorpusFacts, HostFacts, Plan, plan
from trainmaster.plan.decisions.style_and_optimizer import RATE
from trainmaster.plan.spec import load_spec


@pytest.fixture
def planned(small_spec: str, cpu_host: HostFacts, text_corpus: CorpusFacts) -> Callable[..., Plan]:
    return lambda *changes: plan(load_spec(small_spec, changes), cpu_host, text_corpus)


def chosen(made: Plan) -> tuple[str, str]:
    return made.config["model"]["style"], made.config["optimizer"]["name"]


def test_a_new_model_that_names_neither_is_modern_and_trained_by_muon(
    planned: Callable[..., Plan],
) -> None:
    made = planned()
    of_adamw = planned("model.style=modern", "optimizer.name=adamw").config["optimizer"]["lr"]
    decisions = {decision.field: decision for decision in made.decisions}
    assert chosen(made) == ("modern", "muon")
    assert made.config["optimizer"]["lr"] == pytest.approx(RATE * of_adamw, rel=0.05)
    assert "8 times AdamW's rate" in decisions["optimizer.lr"].reason
    assert "design/trainer.md" in (decisions["model.style"].source or "")
    assert "optimizer adamw" in decisions["model.style"].reason
    assert decisions["optimizer.name"].value == "muon"


@pytest.mark.parametrize(
    "changes",
    [
        ("optimizer.name=adamw",),
        ("optimizer.name=muon",),
        ("optimizer.name=lion",),
        ("model.style=gpt2",),
        ("model.activation=gelu",),
        ("model.window=32",),
        ("model.norm=layernorm",),
        ("model.n_head=128",),
        ("compute.fp8_lm_head=true", "compute.gpu=h100"),
        ("model={preset: gpt2-124m}",),
        ("framework=hf",),
    ],
    ids=lambda changes: changes[0],
)
def test_a_spec_that_says_more_is_trained_as_gpt2(
    changes: tuple[str, ...], planned: Callable[..., Plan]
) -> None:
    named = dict(change.split("=") for change in changes)
    assert chosen(planned(*changes)) == ("gpt2", named.get("optimizer.name", "adamw"))


def test_a_style_alone_brings_the_optimizer_that_it_learns_fastest_by(
    planned: Callable[..., Plan],
) -> None:
    assert chosen(planned("model.style=modern")) == ("modern", "muon")
    assert chosen(planned("model.style=llama")) == ("llama", "adamw")


def test_a_rate_of_the_users_own_changes_nothing_else(planned: Callable[..., Plan]) -> None:
    usual, own = planned().config, planned("optimizer.lr=0.004").config
    assert own["optimizer"] == {**usual["optimizer"], "lr": 0.004}
    assert own["model"] == usual["model"]


def test_bytes_are_learned_with_embeddings_of_ngrams_by_muon_alone(
    planned: Callable[..., Plan],
) -> None:
    def rows(*changes: str) -> int:
        return int(planned(*changes).config["model"]["ngram_embeddings"])

    made = planned()
    reason = next(of.reason for of in made.decisions if of.field == "model.ngram_embeddings")
    assert rows() == 16384  # times the width of 128, 2.7 times the blocks' parameters
    assert "0 keeps final/ loadable" in reason
    assert not any("keeps the names of train.py" in warning for warning in made.warnings)
    assert made.config["optimizer"]["betas"] == [0.9, 0.99]
    assert planned("optimizer.betas=[0.8, 0.9]").config["optimizer"]["betas"] == [0.8, 0.9]
    assert planned("model.ngram_embeddings=0").config["optimizer"]["betas"] == [0.9, 0.95]
    assert rows("optimizer.name=adamw") == rows("model.ngram_embeddings=0") == 0
    assert rows("model.style=modern", "model.ngram_embeddings=100") == 100
    named = planned("model.style=modern", "model.ngram_embeddings=100")
    assert any("keeps the names of train.py" in warning for warning in named.warnings)
    without = planned("model.ngram_embeddings=0")
    assert without.config["optimizer"]["lr"] == made.config["optimizer"]["lr"]
