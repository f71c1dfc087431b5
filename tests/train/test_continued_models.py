"""Models of one framework that another one continues: its first loss is theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.host.run_configs import Config, changed
from support.host.tiny_training import SEQ_LEN, RunFolder, prepared_config
from support.plan.rendered import load_script, write_script
from support.train.hf_attempts import Attempts
from support.train.litgpt_training import Run, pretraining
from support.train.preference_data import make_run, write_rows

from trainer_runtime.core.config import ModelConfig, RunConfig
from trainer_runtime.core.files.manifest import Manifest
from trainer_runtime.train.checkpoints.folder import write_folder
from trainer_runtime.train.checkpoints.hf_export import config_of, exported
from trainer_runtime.train.checkpoints.restore import model_tensors
from trainer_runtime.train.data import tokenizers
from trainer_runtime.train.data.batches import Corpus, TrainingData

pytestmark = [pytest.mark.slow, pytest.mark.engine]

TEXT = "the same words in every row"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module", params=["gpt2", "modern", "litgpt"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A final model of a framework, as transformers reads it."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param != "litgpt":
        return of_nanogpt(folder, request.param)
    run = Run(folder / "run", changed(pretraining(folder), {"steps": 1, "eval__batches": 0}))
    assert run.train() == 0
    return run.folder / "final" / "hf"


def of_nanogpt(folder: Path, style: str) -> Path:
    sizes = ModelConfig(2, 4, 4, 32, 48, 257, style)
    write_script(folder, {"framework": "nanogpt", "model": {"style": style}})
    gpt = load_script(folder).GPT(sizes, SEQ_LEN)
    for parameter in gpt.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    data = RunConfig.parse({"data": {"sources": [], "tokenizer": "byte"}}).data
    write_folder(
        folder / "final",
        {"model": exported(model_tensors(gpt), sizes)},
        {"config": config_of(sizes, SEQ_LEN, tokenizers.end_of_text(data))},
        Manifest(1, 1, 0.0, {}, (), "", ()),
        lambda: None,
        others=tokenizers.files_of(data),
    )
    return folder / "final"


def loss_of(model: Path, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    """The mean loss of the tokens that follow each of `inputs`."""
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(model).eval()(inputs).logits
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))


def test_hf_continues_with_the_weights(model: Path, tmp_path: Path) -> None:
    config: Config = prepared_config(tmp_path, "hf", Path(__file__).read_bytes())
    changes = {"model__path": str(model), "precision": "fp32", "steps": 1, "eval__batches": 0}
    run, attempt = RunFolder(tmp_path / "run", changed(config, changes)), Attempts()
    assert attempt(run) == 0, attempt.errors
    (loss,) = run.values_by_step("loss")["metric", 1]
    data = RunConfig.parse(config).data
    corpus = Corpus.open(data.folder, ["main"], data.seq_len)
    inputs, targets = TrainingData(corpus, [1.0], config["seed"]).next_batch(8)
    assert loss == pytest.approx(loss_of(model, inputs, targets), rel=1e-4)


def test_trl_continues_with_the_weights_and_the_tokenizer_beside_them(
    model: Path, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": TEXT}] * 40)
    made = make_run(tmp_path / "run", model, rows, "sft", steps=1, eval={"batches": 0})
    made.config["data"]["seq_len"] = SEQ_LEN
    made.config["data"]["tokenizer"] = str(model)
    assert made.train() == 0
    tokens = torch.tensor([[*TEXT.encode(), 256]])
    # Trainer divides by all labels, though nothing predicts the first one.
    expected = loss_of(model, tokens[:, :-1], tokens[:, 1:]) * (tokens.numel() - 1) / tokens.numel()
    assert made.series("loss")[1] == pytest.approx(expected, rel=1e-4)
