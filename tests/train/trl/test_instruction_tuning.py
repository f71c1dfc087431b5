"""Supervised finetuning by TRL: its rows, batches, templates and sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.plan.architectures import SMALL
from support.train.preference_data import (
    SEQ_LEN,
    TrlRun,
    pairs,
    write_rows,
)
from support.train.preference_runs import LORA, MakeRun, from_step, resumed, texts, weights

from trainer_runtime.core.frameworks import byte_tokenizer
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.loop.drawing import Drawing, draw

pytestmark = pytest.mark.engine


@pytest.mark.smoke
def test_sft_of_an_adapter_saves_it_alone_and_resumes_bit_for_bit(
    make: MakeRun, model: Path, tmp_path: Path
) -> None:
    changes = {"adapter": LORA, "method_args": {"packing": True}, "rows": texts(tmp_path)}
    changes["precision"] = "bf16"  # the frozen weights, too, are then kept in it
    straight = make("sft", "straight", **changes)
    assert straight.train() == 0
    again = resumed(make("sft", "again", **changes), straight, 6)
    keys = ("loss", "grad_norm", "tokens", "entropy", "mean_token_accuracy")
    assert from_step(again, 7, *keys) == from_step(straight, 7, *keys)
    adapter = "adapter_model.safetensors"
    assert weights(again, adapter) == weights(straight, adapter)
    for folder in ("final", "checkpoints/step-00000012"):
        assert (straight.folder / folder / adapter).exists()
        assert not (straight.folder / folder / "model.safetensors").exists()
    assert (straight.folder / "final/tokenizer.json").exists()
    assert straight.events()[0]["parameters"] < 10_000
    assert_it_writes_text(straight, model)


def assert_it_writes_text(run: TrlRun, base: Path) -> None:
    """The adapter merged into its own model: the texts of an adapter differ from the model's."""

    from trainer_runtime.train.hf.text_model import load_text_model

    def text(folder: Path) -> str:
        made = load_text_model(folder, str(base), "cpu", chat=False, tokenizer=run.folder / "final")
        return draw(made, "5 bottles of", Drawing(12, temperature=0)).text

    final = text(run.folder / "final")
    assert final == text(run.folder / "checkpoints/step-00000012")
    assert final != text(base)
    with pytest.raises(ConfigError, match="can't be read as a causal model"):
        text(run.folder)


def test_packed_sft_reads_as_many_tokens_as_planned_however_they_are_accumulated(
    make: MakeRun, tmp_path: Path
) -> None:
    changes = {"method_args": {"packing": True}, "rows": texts(tmp_path), "steps": 4}
    split = make("sft", "split", **changes)
    whole = make("sft", "whole", batch={"micro_batch": 4, "accumulation": 1}, **changes)
    assert split.train() == whole.train() == 0
    assert split.series("tokens")[4] == whole.series("tokens")[4] == 4 * 4 * SEQ_LEN
    for key in ("loss", "grad_norm"):
        of_split, of_whole = split.series(key), whole.series(key)
        assert of_split == pytest.approx(of_whole, rel=1e-4)


def test_sft_of_new_weights_on_answers_to_prompts(make: MakeRun, tmp_path: Path) -> None:
    rows = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in pairs(40)]
    run = make("sft", rows=write_rows(tmp_path / "answers.jsonl", rows), steps=4)
    run.config["model"]["path"] = None
    assert run.train() == 0
    assert (run.folder / "initial_model/model.safetensors").exists()
    assert run.series("val_perplexity", "eval").keys() == {4}


@pytest.mark.parametrize(
    ("described", "kind"),
    [
        ({"vocab_size": 320, "extend_vocab": True, "attention": "eager"}, "llama"),
        ({"path": None, "arch": "qwen3", "config": {**SMALL["qwen3"], "vocab_size": 320}}, "qwen3"),
    ],
    ids=["extended", "architecture"],
)
def test_sft_of_changed_weights_and_of_an_architecture(
    make: MakeRun, tmp_path: Path, described: dict[str, Any], kind: str
) -> None:
    rows = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in pairs(40)]
    run = make("sft", rows=write_rows(tmp_path / "answers.jsonl", rows), steps=2)
    run.config["model"] |= described
    assert run.train() == 0
    config = json.loads((run.folder / "final/config.json").read_text())
    assert (config["model_type"], config["vocab_size"]) == (kind, 320)


def test_files_of_ones_own_are_what_is_evaluated_and_no_row_is_held_out(
    make: MakeRun, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in pairs(43)]
    held_out = [row for number, row in enumerate(rows) if number in (10, 32)]
    others = [row for row in rows if row not in held_out]
    losses = []
    for name, read in (("split", rows), ("own", others)):
        chosen = {"every_steps": 1, "batches": 8}
        run = make(
            "sft", name, rows=write_rows(tmp_path / f"{name}.jsonl", read), steps=1, eval=chosen
        )
        if name == "own":
            path = write_rows(tmp_path / "held-out.jsonl", held_out)
            own = {"name": "val", "path": str(path), "format": "jsonl"}
            run.config["data"] |= {"validation": [own], "fingerprint": "own"}
        assert run.train() == 0
        losses.append(run.series("val_loss", "eval")[1])
        assert f"{len(others)} rows to train on" in capfd.readouterr().out
    assert losses[0] == pytest.approx(losses[1])


def test_a_validation_loss_is_the_same_however_rows_are_put_into_batches(
    make: MakeRun, tmp_path: Path
) -> None:
    rows = [
        {"prompt": row["prompt"], "completion": row["chosen"] * (1 + number % 3)}
        for number, row in enumerate(pairs(60))
    ]
    answers = write_rows(tmp_path / "answers.jsonl", rows)
    losses = {}
    for size in (1, 2, 4):
        batch = {"micro_batch": size, "accumulation": 4 // size}
        chosen = {"every_steps": 1, "batches": 2, "batch_size": 4}
        run = make("sft", f"by-{size}", rows=answers, steps=1, batch=batch, eval=chosen)
        assert run.train() == 0
        losses[size] = run.series("val_loss", "eval")[1]
    assert losses[1] == pytest.approx(losses[4], rel=1e-5)
    assert losses[2] == pytest.approx(losses[4], rel=1e-5)


def test_conversations_are_written_by_the_tokenizer_s_own_template(
    make: MakeRun, tmp_path: Path
) -> None:
    template = "{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}"
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    for name, text in byte_tokenizer.files().items():
        (tokenizer / Path(name).name).write_text(text)
    (tokenizer / "chat_template.jinja").write_text(template)
    rows = [
        {
            "messages": [
                {"role": "user", "content": row["prompt"]},
                {"role": "assistant", "content": row["chosen"]},
            ]
        }
        for row in pairs(40)
    ]
    run = make("sft", rows=write_rows(tmp_path / "messages.jsonl", rows), steps=2)
    run.config["data"]["tokenizer"] = str(tokenizer)
    assert run.train() == 0
    assert run.series("mean_token_accuracy").keys() == {1, 2}


def test_each_source_is_evaluated_by_itself(make: MakeRun, tmp_path: Path) -> None:
    run = make("dpo", steps=2, eval={"every_steps": 2, "batches": 1})
    swapped = write_rows(tmp_path / "swapped.jsonl", pairs(60, swapped=True))
    own = run.config["data"]["sources"][0]
    other = {"name": "odd", "path": str(swapped), "format": "jsonl", "weight": 3.0}
    run.config["data"] |= {"sources": [own, other], "fingerprint": "two"}
    assert run.train() == 0
    (values,) = (event["values"] for event in run.events() if event["kind"] == "eval")
    for name in ("val_loss", "val_rewards/margins"):
        mean = (values[f"{name}/main"] + 3 * values[f"{name}/odd"]) / 4
        assert values[name] == pytest.approx(mean)
    assert values["val_rewards/margins/main"] == pytest.approx(-values["val_rewards/margins/odd"])
