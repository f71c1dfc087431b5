"""LitGPT's own finetuning, of all weights and by LoRA, from its own and from Hugging Face's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support.host.run_configs import Config, changed
from support.train import early_end
from support.train.early_end import ENDS, MIDDLE
from support.train.litgpt_training import STEPS, Run, assert_same_tensors, pretraining

from trainer_runtime.core.files.manifest import verify
from trainer_runtime.core.frameworks import byte_tokenizer
from trainer_runtime.train.attempt.config import read_run_config
from trainer_runtime.train.loop.drawing import Drawing, draw

pytestmark = pytest.mark.engine

SEQ_LEN = 64
TARGETS = ["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTED = {"attn.qkv", "attn.proj", "mlp.fc_1", "mlp.fc_2", "mlp.proj"}
LORA = {"kind": "lora", "r": 4, "alpha": 8, "targets": TARGETS, "quantize": None}
# Dropout draws random numbers, whose state has to be restored too.
ADAPTER = {**LORA, "dropout": 0.1}
# What LitGPT knows by name is too large for a test, so it gets to know this one.
TINY_LLAMA = {
    "name": "tiny-llama-of-a-test",
    "hf_config": {"org": "test", "name": "tiny-llama-of-a-test"},
    "block_size": SEQ_LEN,
    "n_layer": 2,
    "n_embd": 32,
    "n_head": 2,
    "n_query_groups": 1,
    "vocab_size": 320,
    "padded_vocab_size": 320,
    "norm_class_name": "RMSNorm",
    "parallel_residual": False,
    "rotary_percentage": 1.0,
    "mlp_class_name": "LLaMAMLP",
    "intermediate_size": 64,
    "bias": False,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Config]:
    """A finetuning of all weights of a model in Hugging Face's format, on sums."""
    from litgpt.config import name_to_config

    folder = tmp_path_factory.mktemp("sft")
    (folder / "sums.jsonl").write_text("".join(map(line, range(60))))
    source = {"name": "sums", "path": str(folder / "sums.jsonl"), "format": "jsonl", "weight": 1.0}
    changes = {
        "method": "sft",
        "model__path": str(hugging_face_model(folder)),
        "model__preset": TINY_LLAMA["name"],
        "data__sources": [source],
        "data__form": "dataset",
        "data__seq_len": SEQ_LEN,
        "optimizer__lr": 0.01,
        "adapter": None,
    }
    config = changed(pretraining(folder), changes)
    name_to_config[str(TINY_LLAMA["name"])] = TINY_LLAMA
    yield config
    del name_to_config[str(TINY_LLAMA["name"])]


@pytest.fixture(scope="module")
def tuned(base: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("litgpt") / "full", base)
    assert run.train() == 0
    return run


@pytest.fixture(scope="module")
def adapted(base: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("litgpt") / "lora", changed(base, {"adapter": ADAPTER}))
    assert run.train() == 0
    return run


@pytest.mark.parametrize("kind", ["tuned", "adapted"])
def test_finetuning_learns_and_records_every_step(
    kind: str, base: Config, request: pytest.FixtureRequest
) -> None:
    run: Run = request.getfixturevalue(kind)
    curve = run.values_by_step()
    assert [key for key in curve if key[0] == "metric"] == [
        ("metric", step) for step in range(1, STEPS + 1)
    ]
    assert curve["metric", STEPS][0] < curve["metric", 1][0]
    assert [step for name, step in curve if name == "eval"] == [4, 8, 12]
    assert curve["eval", 12][3] < curve["eval", 4][3]
    assert curve["metric", 1][2] == pytest.approx(base["optimizer"]["lr"] / 3)
    assert curve["metric", STEPS][2] == pytest.approx(base["optimizer"]["lr"] / 10)


def test_the_final_model_of_lora_is_merged_and_its_checkpoints_hold_adapters_alone(
    adapted: Run,
) -> None:
    started = adapted.events_of()[0]
    final = adapted.folder / "final"
    assert verify(final) == []
    names = {path.name for path in final.iterdir()}
    assert {"lit_model.pth", "lit_model.pth.lora", "prompt_style.yaml", "tokenizer.json"} <= names
    saved = torch.load(adapted.folder / "checkpoints/step-00000012/lit_model.pth.lora")
    assert all("lora_" in name for name in saved["model"])
    assert sum(tensor.numel() for tensor in saved["model"].values()) == started["parameters"]
    parts = {".".join(name.split(".")[3:5]) for name in saved["model"]}
    assert parts == ADAPTED
    assert not any("lora" in name for name in adapted.model())


def test_a_checkpoint_of_an_adapter_writes_the_text_of_the_merged_model(adapted: Run) -> None:
    from trainer_runtime.train.litgpt.text_model import load_text_model

    config = read_run_config(adapted.folder / "config.json")
    texts = [
        draw(load_text_model(adapted.folder / name, config, "cpu"), "What", Drawing(12, 0.0)).text
        for name in ("final", "checkpoints/step-00000012")
    ]
    assert texts[0] == texts[1] != ""


@pytest.mark.parametrize("kind", ["tuned", "adapted"])
def test_a_finetuning_resumes_exactly(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    straight: Run = request.getfixturevalue(kind)
    run = Run(tmp_path / "run", straight.config)
    name = "checkpoints/step-00000004"
    shutil.copytree(straight.folder / name, run.folder / name)
    assert run.train(number=2) == 0
    assert run.events_of(2)[0]["resumed_from"] == 4
    expected = {key: values for key, values in straight.values_by_step().items() if key[1] > 4}
    assert run.values_by_step(2) == expected
    assert_same_tensors(run.model(), straight.model())


def test_a_lora_with_averages_that_ends_early_is_the_same_after_a_resume(
    base: Config, tmp_path: Path
) -> None:
    config = changed(base, {"adapter": ADAPTER, **early_end.CHANGES})
    straight, resumed, over = (Run(tmp_path / name, config) for name in ("a", "b", "c"))
    assert straight.train() == 0
    early_end.assert_ended_early(straight.folder, straight.events())
    saved = straight.folder / f"checkpoints/step-{ENDS:08d}/lit_model.pth.lora"
    weights = torch.load(saved, weights_only=True)["model"]
    early_end.assert_averages_differ(straight.folder, weights)

    early_end.take_checkpoint(straight.folder, resumed.folder, MIDDLE)
    assert resumed.train(number=2) == 0
    early_end.assert_same_from(MIDDLE, straight.events(), resumed.events("attempts/2"))
    assert early_end.averages(resumed.folder) == early_end.averages(straight.folder)
    assert_same_tensors(resumed.model(), straight.model())

    early_end.take_checkpoint(straight.folder, over.folder, ENDS)
    assert over.train(number=2) == 0
    assert early_end.values_of(over.events("attempts/2")) == {}
    assert_same_tensors(over.model(), straight.model())


def test_phases_mix_rows_report_what_was_drawn_and_resume_exactly_at_a_border(
    base: Config, tmp_path: Path
) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text("".join(map(line, range(60, 90))))
    source = {"name": "more", "path": str(more), "format": "jsonl", "weight": 1.0}
    whole = {"steps": 4, "sequences": 8, "seq_len": SEQ_LEN}
    phases = [
        {**whole, "name": "base", "sources": {"sums": 1.0}},
        {**whole, "name": "mixed", "sources": {"sums": 0.75, "more": 0.25}},
        {**whole, "name": "anneal", "lr": {"kind": "linear", "from": None, "to": 0.0}},
    ]
    changes = {"data__sources": [*base["data"]["sources"], source], "phases": phases}
    straight, resumed = (Run(tmp_path / of, changed(base, changes)) for of in ("a", "b"))
    assert straight.train() == 0
    ends = [e for e in straight.events_of() if e["kind"] == "phase" and e["action"] == "end"]
    assert [end["drawn"] for end in ends] == [
        {"sums": 32, "more": 0},
        {"sums": 24, "more": 8},
        {"sums": 16, "more": 16},
    ]
    early_end.take_checkpoint(straight.folder, resumed.folder, 4)
    assert resumed.train(number=2) == 0
    expected = {key: values for key, values in straight.values_by_step().items() if key[1] > 4}
    assert resumed.values_by_step(2) == expected


def test_a_model_of_hugging_faces_is_converted_once(base: Config, tuned: Run) -> None:
    [converted] = Path(base["data"]["cache_dir"]).glob("models/litgpt/[!.]*[!k]")
    assert (converted / "lit_model.pth").exists()
    given = Path(base["model"]["path"])
    assert not (given / "lit_model.pth").exists()
    assert (converted / "tokenizer.json").resolve() == given / "tokenizer.json"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model__preset": "of-nobody"}, "LitGPT knows no model 'of-nobody'"),
        ({"model__path": None}, "method sft finetunes a model"),
        ({"data__seq_len": 4}, "every prompt fills data.seq_len 4"),
        ({"compute__strategy": "fsdp", "adapter": LORA}, "not for LoRA in LitGPT"),
    ],
)
def test_what_cant_be_finetuned_is_unusable(
    base: Config,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    reason: str,
) -> None:
    assert Run(tmp_path / "run", changed(base, changes)).train() == 77
    assert reason in capfd.readouterr().err


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("row", "example"),
    [
        (
            {"instruction": "Add.", "input": None, "output": "3"},
            {"instruction": "Add.", "input": "", "output": "3"},
        ),
        ({"prompt": "1+2=", "completion": "3"}, {"instruction": "1+2=", "output": "3"}),
        (
            {
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "1+2?"},
                    {"role": "assistant", "content": "3"},
                ]
            },
            {"instruction": "1+2?", "output": "3", "sys_prompt": "Be brief."},
        ),
    ],
)
def test_rows_become_instructions(row: dict[str, Any], example: dict[str, str]) -> None:
    from trainer_runtime.train.litgpt.examples import as_example

    assert as_example(row) == example


def line(number: int) -> str:
    row = {"prompt": f"{number} + {number} = ", "completion": f"{2 * number}"}
    return json.dumps(row) + "\n"


def hugging_face_model(folder: Path) -> Path:
    """A Llama with random weights as `save_pretrained` leaves one, with the byte tokenizer."""
    model = folder / "model"
    model.mkdir()
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 0.05

    weights = {
        "model.embed_tokens.weight": random(320, 32),
        "model.norm.weight": torch.ones(32),
        "lm_head.weight": random(320, 32),
    }
    for layer in range(2):
        at = f"model.layers.{layer}"
        weights |= {
            f"{at}.self_attn.q_proj.weight": random(32, 32),
            f"{at}.self_attn.k_proj.weight": random(16, 32),
            f"{at}.self_attn.v_proj.weight": random(16, 32),
            f"{at}.self_attn.o_proj.weight": random(32, 32),
            f"{at}.mlp.gate_proj.weight": random(64, 32),
            f"{at}.mlp.up_proj.weight": random(64, 32),
            f"{at}.mlp.down_proj.weight": random(32, 64),
            f"{at}.input_layernorm.weight": torch.ones(32),
            f"{at}.post_attention_layernorm.weight": torch.ones(32),
        }
    save_file(weights, model / "model.safetensors")
    for path, text in byte_tokenizer.files().items():
        (model / Path(path).name).write_text(text)
    return model
