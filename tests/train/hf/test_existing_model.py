"""Existing weights that are changed before they are trained, and what attends how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from support.host.run_configs import Config, changed
from support.host.tiny_training import LOSSES, RunFolder, prepared_config
from support.train.hf_attempts import Attempts, CrashError, crash

from trainer_runtime.core.config import ModelConfig
from trainer_runtime.core.config.model import RopeScaling
from trainer_runtime.core.config.optimization import OptimizerConfig
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.attempt.objective import Objective
from trainer_runtime.train.hf.linear_loss import summed_by_chunks

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
ROWS = 260


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config]:
    from transformers import AutoModelForCausalLM, LlamaConfig

    folder = tmp_path_factory.mktemp("existing")
    config = prepared_config(folder, "hf", Path(__file__).read_bytes() * 3)
    changes = {"steps": 4, "eval__every_steps": 4, "eval__batches": 1, "checkpoint__every": 2}
    torch.manual_seed(0)
    written = LlamaConfig(**SIZES, vocab_size=ROWS, max_position_embeddings=16)
    AutoModelForCausalLM.from_config(written).save_pretrained(folder / "weights")
    return folder / "weights", changed(config, changes)


@pytest.fixture
def make_run(tmp_path: Path, base: tuple[Path, Config]) -> Callable[..., RunFolder]:
    def make(name: str, model: dict[str, Any], **changes: Any) -> RunFolder:
        described = {"path": str(base[0]), "style": None, **model}
        return RunFolder(tmp_path / name, changed({**base[1], "model": described}, changes))

    return make


def test_new_rows_are_the_mean_of_the_others(base: tuple[Path, Config]) -> None:
    from transformers import AutoModelForCausalLM

    from trainer_runtime.train.hf.existing_model import extend_vocabulary

    model: Any = AutoModelForCausalLM.from_pretrained(base[0])
    before = model.get_input_embeddings().weight.detach().clone()
    extend_vocabulary(model, ModelConfig(0, 0, 0, 0, 0, 320, "", extend_vocab=True))
    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
        assert layer.weight.shape == (320, 32)
        torch.testing.assert_close(layer.weight[300], layer.weight[:ROWS].mean(dim=0))
    assert torch.equal(model.get_input_embeddings().weight[:ROWS], before)
    assert model.config.vocab_size == 320


def test_longer_sequences_and_more_tokens_are_trained_and_resumed_after_a_kill(
    make_run: Callable[..., RunFolder],
) -> None:
    from transformers import AutoConfig

    attempt = Attempts()
    changes = {
        "vocab_size": 320,
        "extend_vocab": True,
        "rope_base": 500_000.0,
        "rope_scaling": {"kind": "yarn", "factor": 4.0},
        "attention": "eager",
    }
    straight, killed = make_run("straight", changes), make_run("killed", changes)
    assert attempt(straight) == 0, attempt.errors
    assert "attention: eager" in attempt.printed
    with pytest.raises(CrashError):
        attempt(killed, disturbance=(3, crash))
    assert attempt(killed) == 0, attempt.errors
    assert killed.values_by_step(*LOSSES) == straight.values_by_step(*LOSSES)
    config = AutoConfig.from_pretrained(killed.folder / "final")
    assert (config.vocab_size, config.max_position_embeddings) == (320, 64)
    assert config.rope_parameters["rope_theta"] == 500_000.0
    assert config.rope_parameters["factor"] == 4.0


@pytest.mark.parametrize("arch", ["gpt2", "gemma3_text"])
def test_positions_that_cannot_be_scaled_are_refused(arch: str) -> None:
    from transformers import AutoConfig

    from trainer_runtime.train.hf.existing_model import rotate_by

    model = ModelConfig(0, 0, 0, 0, 0, 0, "", rope_scaling=RopeScaling("yarn", 2.0))
    with pytest.raises(ConfigError, match=f"model.rope_…: {arch}"):
        rotate_by(AutoConfig.for_model(arch), model, 64)


def test_an_attention_that_the_environment_lacks_ends_the_attempt(
    make_run: Callable[..., RunFolder],
) -> None:
    attempt = Attempts()
    assert attempt(make_run("flash", {"attention": "flash_attention_2"})) == 77
    assert "model.attention flash_attention_2" in attempt.errors


def test_logits_by_chunks_give_the_losses_of_whole_ones(
    make_run: Callable[..., RunFolder],
) -> None:
    attempt = Attempts()
    # On a host without bf16 both compute in fp32.
    whole = make_run("whole", {}, precision="fp32")
    chunked = make_run("chunked", {}, precision="fp32", compute__loss="chunked")
    assert attempt(whole) == 0, attempt.errors
    assert attempt(chunked) == 0, attempt.errors
    expected, losses = (
        [value for values in run.values_by_step("loss", "val_loss").values() for value in values]
        for run in (whole, chunked)
    )
    assert [value for value in losses if value] == pytest.approx(
        [value for value in expected if value], rel=1e-5
    )
    assert sum(value is not None for value in losses) > 4


@pytest.mark.parametrize("terms", [{}, {"z_loss": 0.1, "label_smoothing": 0.1}])
def test_gradients_by_chunks_are_those_of_whole_logits(terms: Mapping[str, float]) -> None:
    summed = Objective(OptimizerConfig(**terms)).summed
    torch.manual_seed(0)
    hidden, weight = torch.randn(11, 8), torch.randn(40, 8)
    targets = torch.randint(40, (11,))
    gradients = []
    for by_chunks in (False, True):
        of_hidden, of_weight = (tensor.clone().requires_grad_() for tensor in (hidden, weight))
        if by_chunks:
            loss = summed_by_chunks(of_hidden, of_weight, targets, summed, 4)
        else:
            loss = summed(of_hidden @ of_weight.t(), targets)
        (loss / 3).backward()
        gradients.append((loss.detach(), of_hidden.grad, of_weight.grad))
    for whole, chunked in zip(*gradients, strict=True):
        torch.testing.assert_close(chunked, whole)


def test_a_model_that_caps_its_logits_takes_no_chunked_loss(
    make_run: Callable[..., RunFolder],
) -> None:
    attempt = Attempts()
    config = {**SIZES, "num_key_value_heads": 4, "vocab_size": 320}
    run = make_run(
        "capped", {"path": None, "arch": "nanochat", "config": config}, compute__loss="chunked"
    )
    assert attempt(run) == 77
    assert "changes its logits" in attempt.errors
