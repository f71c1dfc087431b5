"""What planning makes of loss terms, averaged weights and early stopping, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainmaster.errors.errors import TrainmasterError
from trainmaster.plan import CorpusFacts, HostFacts, Plan, plan
from trainmaster.plan.spec import TrainingSpec

STOPPING = "eval.early_stopping={patience: 2}"


@pytest.fixture
def planned(
    make_spec: Callable[..., TrainingSpec], cpu_host: HostFacts, text_corpus: CorpusFacts
) -> Callable[..., Plan]:
    return lambda *changes: plan(make_spec(*changes), cpu_host, text_corpus)


def test_averages_cost_four_bytes_a_parameter_in_memory_and_on_disk(
    planned: Callable[..., Plan],
) -> None:
    sizes = ("model.d_model=768", "model.n_head=12", "model.n_layer=8", "batch.micro_batch=1")
    without, averaged = planned(*sizes), planned(*sizes, "checkpoint.ema=0.999")
    assert averaged.config["checkpoint"]["ema"] == 0.999
    after, before = averaged.estimates, without.estimates
    assert after.parameters and after.memory_gib and before.memory_gib
    assert after.disk_gib and before.disk_gib
    gib = 4 * after.parameters / 2**30
    assert after.memory_gib - before.memory_gib > 0.9 * gib
    assert after.disk_gib - before.disk_gib > 2 * gib  # several checkpoints stand at once
    decision = next(of for of in averaged.decisions if of.field == "checkpoint.ema")
    assert "4 bytes a trained parameter" in decision.reason


def test_early_stopping_goes_by_the_metric_of_the_best_checkpoint_and_the_reverse(
    planned: Callable[..., Plan],
) -> None:
    stopping = planned(STOPPING).config["eval"]["early_stopping"]
    assert stopping == {"patience": 2, "metric": "val_loss", "min_delta": 0.0}
    own = planned("eval.early_stopping={patience: 2, metric: val_perplexity}").config
    assert own["checkpoint"]["metric"] == "val_perplexity"
    by_average = planned(
        "checkpoint.ema=0.9", "eval.early_stopping={patience: 2, metric: val_loss_ema}"
    )
    assert by_average.config["eval"]["early_stopping"]["metric"] == "val_loss_ema"
    assert "early_stopping" not in planned().config["eval"]


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        (["eval.early_stopping={patience: 2, metric: bleu}"], "eval.early_stopping.metric", "val_"),
        (
            ["eval.early_stopping={patience: 2, metric: val_loss_ema}"],
            "eval.early_stopping.metric",
            "nothing reports",
        ),
        (
            ["eval.early_stopping={patience: 900}"],
            "eval.early_stopping.patience",
            "at the earliest",
        ),
        (["checkpoint.ema=1.0"], "checkpoint.ema", ""),
        (
            ["checkpoint.ema=0.9", "optimizer.name=schedule_free"],
            "checkpoint.ema",
            "averages the weights itself",
        ),
        (
            ["framework=hf", "checkpoint.ema=0.9", "compute.strategy=zero2"],
            "checkpoint.ema",
            "no rank has the whole weights",
        ),
        (
            ["framework=hf", "checkpoint.ema=0.9", "compute.strategy=zero3"],
            "checkpoint.ema",
            "or set compute.strategy to ddp",
        ),
        (
            ["optimizer.label_smoothing=0.1", "optimizer.focal_gamma=2"],
            "optimizer.focal_gamma",
            "label_smoothing",
        ),
        (
            ["framework=hf", "optimizer.z_loss=0.0001", "compute.loss=liger"],
            "optimizer.z_loss",
            "chunked",
        ),
        (
            ["optimizer.z_loss=0.0001", "compute.fp8_lm_head=true"],
            "optimizer.z_loss",
            "fp8_lm_head",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_by_field(
    planned: Callable[..., Plan], changes: list[str], field: str, words: str
) -> None:
    with pytest.raises(TrainmasterError) as caught:
        planned(*changes)
    assert field in str(caught.value.field)
    assert words in f"{caught.value.message} {caught.value.fix}"
