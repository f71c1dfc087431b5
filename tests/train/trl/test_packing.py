"""Supervised finetuning on packed rows: none is cut, none sees another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.train.preference_data import SEQ_LEN, write_rows
from support.train.preference_runs import MakeRun, from_step, resumed, weights
from torch.nn import functional

pytestmark = pytest.mark.engine
LENGTHS = (3, 50, 17, 1, 30, 64, 8, 25, 11, 40, 5, 2)


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    rows = [
        {"prompt": f"Count to {number}:", "completion": " 1" * (1 + number * 7 % 18)}
        for number in range(60)
    ]
    return write_rows(tmp_path / "answers.jsonl", rows)


def packs() -> tuple[list[list[int]], Any]:
    """Rows of tokens, and TRL's packs of them."""
    from datasets import Dataset
    from trl.data_utils import pack_dataset

    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(0, 256, (length,), generator=generator).tolist() for length in LENGTHS]
    columns = Dataset.from_dict({"input_ids": rows, "labels": rows})
    return rows, pack_dataset(columns, SEQ_LEN, "bfd")


@pytest.mark.smoke
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.no_grad()
def test_a_row_has_the_same_loss_in_a_pack_as_alone(model: Path, attention: str) -> None:
    from transformers import AutoModelForCausalLM

    from trainer_runtime.train.trl.packing import PackCollator

    trained = AutoModelForCausalLM.from_pretrained(model, attn_implementation=attention).eval()
    rows, packed = packs()
    assert len(packed) < len(rows)
    batch = PackCollator(256)(list(packed))
    mask = batch.pop("attention_mask")
    assert int(mask.sum()) == sum(LENGTHS)
    labels = batch.pop("labels")
    losses = losses_of(trained(**batch, use_cache=False).logits, labels)
    for at, pack in enumerate(packed):
        begin = 0
        for length in pack["seq_lengths"]:
            row = pack["input_ids"][begin : begin + length]
            assert row in rows  # whole
            alone = torch.tensor([row])
            expected = losses_of(trained(alone, use_cache=False).logits, alone)[0]
            of_pack = losses[at, begin : begin + length - 1]
            torch.testing.assert_close(of_pack, expected, rtol=1e-4, atol=1e-5)
            begin += length


def losses_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Of each prediction of a next token."""
    return functional.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:], reduction="none")


def test_packed_rows_resume_bit_for_bit(make: MakeRun, answers: Path) -> None:
    changes = {"method_args": {"packing": True}, "rows": answers}
    straight = make("sft", "straight", **changes)
    assert straight.train() == 0
    again = resumed(make("sft", "again", **changes), straight, 6)
    keys = ("loss", "grad_norm", "tokens", "mean_token_accuracy")
    assert from_step(again, 7, *keys) == from_step(straight, 7, *keys)
    assert weights(again) == weights(straight)


def test_a_step_of_packs_has_more_tokens_and_the_validation_loss_of_unpacked_rows(
    make: MakeRun, answers: Path
) -> None:
    tokens, losses = {}, {}
    for packing in (False, True):
        run = make(
            "sft",
            f"packing-{packing}",
            rows=answers,
            method_args={"packing": packing},
            steps=1,
            eval={"every_steps": 1, "batches": 2},
            optimizer={"lr": 1e-12},
        )
        assert run.train() == 0
        tokens[packing] = run.series("tokens")[1]
        losses[packing] = run.series("val_loss", "eval")[1]
    assert losses[True] == pytest.approx(losses[False], rel=1e-5)
    assert 1.5 * tokens[False] < tokens[True] <= 4 * SEQ_LEN
    assert tokens[True] > 0.8 * 4 * SEQ_LEN


def test_an_architecture_that_cannot_keep_rows_apart_is_refused(
    make: MakeRun, answers: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = make("sft", rows=answers, method_args={"packing": True}, steps=2)
    bloom = {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 320}
    run.config["model"] |= {"path": None, "arch": "bloom", "config": bloom}
    assert run.train() == 77
    assert "bloom in this transformers can't keep rows apart" in capfd.readouterr().err


def test_packs_that_workers_read_ahead_give_the_same_losses(make: MakeRun, answers: Path) -> None:
    losses = []
    for workers in (0, 2):
        changes = {"method_args": {"packing": True}, "rows": answers, "steps": 3}
        run = make("sft", f"workers-{workers}", **changes)
        run.config["data"]["workers"] = workers
        assert run.train() == 0
        losses.append(run.series("loss"))
    assert losses[0] == losses[1]
