"""Masked language models and denoising encoder-decoders by HF Trainer: learnt, killed, resumed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.host.run_configs import Config, changed
from support.host.tiny_training import LOSSES, RunFolder, prepared_config
from support.plan.architectures import SMALL_BY_OBJECTIVE
from support.session.tiers import at_length
from support.train.hf_attempts import Attempts, CrashError, crash
from support.train.model_folders import write_tokenizer

from trainmaster.plan.transformers_architectures import objective_of

SHORTLY = ("roberta", "t5")
ARCHITECTURES = [*SHORTLY, *at_length(*(of for of in SMALL_BY_OBJECTIVE if of not in SHORTLY))]
# From 257 on; the byte tokenizer's own tokens before.
WORDS = ("[MASK]", "[CLS]", *(f"<extra_id_{number}>" for number in range(20)))
ROWS = 320


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("objectives")
    config = prepared_config(folder, "hf", Path(__file__).read_bytes() * 3)
    tokenizer = write_tokenizer(folder / "tokenizer", WORDS)
    changes = {"steps": 4, "eval__every_steps": 2, "eval__batches": 1, "checkpoint__every": 2}
    return changed(config, {**changes, "data__tokenizer": str(tokenizer)})


@pytest.fixture
def make_run(tmp_path: Path, base: Config) -> Callable[..., RunFolder]:
    def make(name: str, model: Mapping[str, Any], objective: str, **changes: Any) -> RunFolder:
        described = {**base, "model": {"style": None, **model}, "objective": objective}
        return RunFolder(tmp_path / name, changed(described, changes))

    return make


def new(arch: str) -> dict[str, Any]:
    """The section of a resolved configuration."""
    config = {**SMALL_BY_OBJECTIVE[arch], "vocab_size": ROWS}
    return {"arch": arch, "config": config}


def loaded(folder: Path, objective: str) -> Any:
    from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    kind = AutoModelForMaskedLM if objective == "masked" else AutoModelForSeq2SeqLM
    model, found = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(found.values())
    return model


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_an_objective_continues_after_a_kill_as_if_there_was_none(
    make_run: Callable[..., RunFolder], arch: str
) -> None:
    objective = str(objective_of(arch))
    attempt = Attempts()
    straight, killed = (make_run(name, new(arch), objective) for name in ("straight", "killed"))
    assert attempt(straight) == 0, attempt.errors
    with pytest.raises(CrashError):
        attempt(killed, disturbance=(3, crash))
    assert killed.steps_stored() == [2]
    assert attempt(killed) == 0, attempt.errors
    assert killed.values_by_step(*LOSSES) == straight.values_by_step(*LOSSES)
    assert killed.weights() == straight.weights()
    model = loaded(killed.folder / "final", objective)
    assert model.config.model_type == arch
    assert killed.events()[0]["parameters"] == model.num_parameters()


@pytest.mark.parametrize("arch", ["bert", "t5"])
def test_the_loss_falls_and_the_weights_are_trained_further(
    make_run: Callable[..., RunFolder], arch: str
) -> None:
    objective = str(objective_of(arch))
    attempt = Attempts()
    run = make_run("new", new(arch), objective, steps=60, eval__every_steps=30)
    assert attempt(run) == 0, attempt.errors
    losses = [loss for (kind, _), (loss, *_) in run.values_by_step("loss").items() if loss]
    assert sum(losses[-5:]) / 5 < 0.8 * losses[0]
    assert run.values_by_step("val_loss")["eval", 60][0] < 0.8 * math.log(ROWS)
    weights = {"path": str(run.folder / "final"), "vocab_size": ROWS}
    further = make_run("further", weights, objective, steps=2)
    assert attempt(further) == 0, attempt.errors
    assert further.values_by_step("loss")["metric", 1][0] < 0.85 * losses[0]
    loaded(further.folder / "final", objective)


def test_a_tokenizer_without_the_objectives_tokens_ends_the_attempt(
    make_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    attempt = Attempts()
    plain = str(write_tokenizer(tmp_path / "plain"))
    for arch, words in (("bert", "has no mask token"), ("t5", "the tokenizer 0 sentinels")):
        run = make_run(arch, new(arch), str(objective_of(arch)), data__tokenizer=plain)
        assert attempt(run) == 77
        assert words in attempt.errors


def test_masks_of_a_validation_are_the_same_at_every_evaluation(
    make_run: Callable[..., RunFolder],
) -> None:
    attempt = Attempts()
    run = make_run("still", new("bert"), "masked", optimizer__lr=1e-12)
    assert attempt(run) == 0, attempt.errors
    first, second = (run.values_by_step("val_loss")["eval", step][0] for step in (2, 4))
    assert first == pytest.approx(second, rel=1e-6)


def test_weights_without_the_head_that_fills_masks_are_refused(
    make_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    from transformers import BertConfig, BertModel

    bare = BertModel(BertConfig(**SMALL_BY_OBJECTIVE["bert"], vocab_size=ROWS))
    bare.save_pretrained(tmp_path / "bare")
    attempt = Attempts()
    run = make_run("headless", {"path": str(tmp_path / "bare"), "vocab_size": ROWS}, "masked")
    assert attempt(run) == 77
    assert "lacks weights of BertForMaskedLM, such as cls.predictions" in attempt.errors
