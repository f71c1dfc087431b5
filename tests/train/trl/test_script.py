"""The real scripts of TRL's methods, in this process, on a tiny model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.plan.architectures import SMALL
from support.train.operator_threads import operators_in_this_thread_alone
from support.train.preference_data import (
    SEQ_LEN,
    TrlRun,
    make_run,
    pairs,
    save_tiny_model,
    train_kind,
    write_rows,
)

from trainer_runtime.core.files.manifest import verify
from trainer_runtime.core.frameworks import byte_tokenizer
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.hf.text_model import load_text_model
from trainer_runtime.train.loop.drawing import Drawing, draw

pytestmark = pytest.mark.engine

LORA = {"kind": "lora", "r": 4, "alpha": 8.0, "targets": "auto", "quantize": None}
REWARD = (
    "def reward_length(completions, **columns):\n    return [float(len(c)) for c in completions]\n"
)
MakeRun = Callable[..., TrlRun]


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def preferences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("rows") / "pairs.jsonl", pairs(60))


@pytest.fixture
def make(tmp_path: Path, model: Path, preferences: Path) -> MakeRun:
    def one(method: str, name: str = "run", rows: Path = preferences, **changes: Any) -> TrlRun:
        return make_run(tmp_path / name, model, rows, method, **changes)

    return one


@pytest.fixture(scope="module")
def aligned(tmp_path_factory: pytest.TempPathFactory, model: Path, preferences: Path) -> TrlRun:
    """DPO, trained to its end without a break."""
    run = make_run(tmp_path_factory.mktemp("aligned") / "run", model, preferences, "dpo")
    with operators_in_this_thread_alone():
        assert run.train() == 0
    return run


def resumed(run: TrlRun, straight: TrlRun, step: int) -> TrlRun:
    """The run, trained from another one's checkpoint of a step to its end."""
    kept = f"checkpoints/step-{step:08d}"
    shutil.copytree(straight.folder / kept, run.folder / kept)
    assert run.train(mode="step", candidates=[step]) == 0
    return run


def from_step(run: TrlRun, first: int, *keys: str) -> dict[str, dict[int, Any]]:
    series = {key: run.series(key) for key in keys}
    return {
        key: {step: value for step, value in of.items() if step >= first}
        for key, of in series.items()
    }


def test_dpo_records_everything_in_order_and_leaves_a_verified_model(aligned: TrlRun) -> None:
    events = aligned.events()
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert (events[0]["kind"], events[0]["parameters"]) == ("started", 35040)
    assert (events[-1]["kind"], events[-1]["step"]) == ("completed", 12)
    assert [*aligned.series("loss")] == list(range(1, 13))
    assert [event["step"] for event in events if event["kind"] == "eval"] == [6, 12]
    assert verify(aligned.folder / "final") == []
    assert sorted(path.name for path in aligned.folder.glob("checkpoints/*")) == [
        "step-00000006",
        "step-00000012",
    ]


def test_dpo_learns_to_rank_the_pairs_and_records_it_under_trl_s_names(
    aligned: TrlRun,
) -> None:
    margins, held_out = aligned.series("rewards/margins"), aligned.series("val_loss", "eval")
    assert margins[1] == 0.0
    assert margins[12] > 0.5
    assert held_out[12] < held_out[6] < 0.69
    metric = next(event for event in aligned.events() if event["kind"] == "metric")
    assert metric["values"].keys() >= {
        "loss", "lr", "grad_norm", "tokens", "tokens_per_s", "entropy", "mean_token_accuracy",
        "rewards/chosen", "rewards/rejected", "rewards/accuracies", "logps/chosen",
        "logps/rejected", "logits/chosen", "logits/rejected",
    }  # fmt: skip
    evaluation = next(event for event in aligned.events() if event["kind"] == "eval")
    assert evaluation["values"].keys() >= {"val_rewards/margins", "val_rewards/accuracies"}
    assert "val_perplexity" not in evaluation["values"]  # of a loss that is not per token


def test_tokens_and_epochs_are_those_really_read(aligned: TrlRun) -> None:
    tokens = aligned.series("tokens")
    assert tokens[12] == pytest.approx(4 * 12 * 2 * 37, rel=0.05)
    assert aligned.series("epoch")[12] == pytest.approx(4 * 12 / 57)


def test_a_resumed_dpo_equals_the_one_without_a_break(make: MakeRun, aligned: TrlRun) -> None:
    run = resumed(make("dpo"), aligned, 6)
    keys = ("loss", "grad_norm", "lr", "tokens", "epoch", "rewards/margins", "logps/chosen")
    assert from_step(run, 7, *keys) == from_step(aligned, 7, *keys)
    assert weights(run) == weights(aligned)


def weights(run: TrlRun, name: str = "model.safetensors") -> bytes:
    return (run.folder / "final" / name).read_bytes()


def test_ipo_has_another_loss_and_the_same_metrics(make: MakeRun, aligned: TrlRun) -> None:
    run = make("dpo", steps=2, method_args={"loss": "ipo", "beta": 0.1})
    assert run.train() == 0
    assert run.series("loss")[1] == pytest.approx((1 / (2 * 0.1)) ** 2)
    assert run.series("loss")[1] != aligned.series("loss")[1]
    assert run.series("rewards/margins").keys() == {1, 2}


def test_kto_trains_on_single_answers_that_are_desirable_or_not(
    make: MakeRun, tmp_path: Path
) -> None:
    answers = [
        {"prompt": row["prompt"], "completion": row[kind], "label": kind == "chosen"}
        for row in pairs(30)
        for kind in ("chosen", "rejected")
    ]
    run = make("kto", rows=write_rows(tmp_path / "answers.jsonl", answers))
    assert run.train() == 0
    loss = run.series("loss")
    assert loss[12] < loss[1] == pytest.approx(0.5)
    assert run.series("kl").keys() == loss.keys()
    assert run.series("val_loss", "eval").keys() == {6, 12}


def test_a_reward_model_gets_a_head_that_is_kept_with_its_adapter(make: MakeRun) -> None:
    from safetensors import safe_open

    run = make("reward", adapter=LORA, optimizer={"lr": 0.02})
    assert run.train() == 0
    assert run.series("margin")[12] > run.series("margin")[1]
    assert {"accuracy", "mean_reward", "min_reward", "max_reward"} <= {
        key for event in run.events() for key in event.get("values", ())
    }
    with safe_open(run.folder / "final/adapter_model.safetensors", "pt") as saved:
        assert any("score" in name for name in list(saved.keys()))


def test_grpo_is_rewarded_by_the_run_s_own_file_and_saves_on_sigterm(
    make: MakeRun, model: Path
) -> None:
    changes = {"steps": 4, "method_args": {"num_generations": 2, "max_completion_length": 8}}
    changes["eval"] = {"every_steps": 4, "batches": 1}
    changes["checkpoint"] = {"metric": "val_reward"}
    straight, stopped = make("grpo", "straight", **changes), make("grpo", "stopped", **changes)
    (straight.folder / "reward.py").write_text(REWARD)
    assert straight.train() == 0
    keys = {key for event in straight.events() for key in event.get("values", ())}
    assert keys >= {
        "reward", "reward_std", "rewards/reward_length/mean", "completions/mean_length", "entropy",
        "val_reward", "clip_ratio/low_mean",
    }  # fmt: skip
    saved = [event for event in straight.events() if event.get("action") == "saved"]
    assert saved[-1]["metrics"].keys() == {"loss", "val_loss", "val_reward"}
    at_second_call = "calls = []\n" + REWARD.replace(
        "    return",
        "    calls.append(1)\n"
        "    if len(calls) == 2:\n"
        "        import os, signal\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return",
    )
    (stopped.folder / "reward.py").write_text(at_second_call)
    assert stopped.train() == 75
    assert [event["kind"] for event in stopped.events()].count("completed") == 0
    assert [path.name for path in stopped.folder.glob("checkpoints/*")] == ["step-00000002"]
    (stopped.folder / "reward.py").write_text(REWARD)
    assert stopped.train() == 0
    keys = ("loss", "reward", "tokens", "grad_norm")
    assert from_step(stopped, 1, *keys) == from_step(straight, 1, *keys)
    assert weights(stopped) == weights(straight)


def texts(folder: Path) -> Path:
    rows = [
        {"text": f"{number} bottles of water on the wall, take one. " * 4} for number in range(40)
    ]
    return write_rows(folder / "texts.jsonl", rows)


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


def test_skipped_rows_are_left_out_and_stay_so_across_a_resume(
    make: MakeRun, aligned: TrlRun
) -> None:
    skipping = make("dpo", data={"skip": [{"at_step": 6, "sequences": 4}]})
    run = resumed(skipping, aligned, 6)
    # What was step 8's is step 7's now: the same pairs, though the weights differ by one step.
    assert run.series("tokens")[7] - aligned.series("tokens")[6] == pytest.approx(
        aligned.series("tokens")[8] - aligned.series("tokens")[7]
    )
    assert run.series("loss")[7] != aligned.series("loss")[7]


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


@pytest.mark.parametrize(
    ("method", "changes", "problem"),
    [
        (
            "kto",
            {"rows": "texts"},
            "it has no `prompt` and `completion` and `label`, but `text`",
        ),
        ("kto", {"batch": {"micro_batch": 1}}, "batch.micro_batch must be at least 2"),
        ("sft", {"rows": "messages"}, "the tokenizer has no chat template"),
        ("dpo", {"rows": "long"}, "only 0 rows fit data.seq_len 64"),
        ("dpo", {"adapter": LORA | {"targets": ["q_proj", "wq"]}}, "no linear module 'wq'"),
        ("dpo", {"adapter": LORA | {"targets": ["lm_head"]}}, "it has q_proj, k_proj"),
        ("dpo", {"adapter": LORA | {"quantize": "nf4"}}, "needs a CUDA device"),
        ("dpo", {"data": {"seq_len": 65}}, "data.seq_len 65 is more than the model's 64 positions"),
        ("grpo", {"method_args": {"num_generations": 2}}, "reward.py is missing"),
        (
            "grpo",
            {"method_args": {"num_generations": 2, "max_completion_length": 60}},
            "no row's prompt has 4 tokens or fewer",
        ),
        ("grpo", {}, "must be divisible by num_generations (8)"),
        ("dpo", {"model": {"path": "/nowhere"}}, "holds no model"),
    ],
)
def test_what_can_not_be_trained_ends_with_77_and_plain_words(
    make: MakeRun,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    method: str,
    changes: dict[str, Any],
    problem: str,
) -> None:
    message = {"role": "user", "content": "Who is it?"}
    rows = {
        "texts": [{"text": "It is me."}] * 20,
        "messages": [{"messages": [message, {**message, "role": "assistant"}]}] * 20,
        "long": [{"prompt": "a" * 70, "chosen": "b", "rejected": "c"}] * 20,
    }
    if (kind := changes.get("rows")) is not None:
        changes = {**changes, "rows": write_rows(tmp_path / f"{kind}.jsonl", rows[kind])}
    assert make(method, **changes).train() == 77
    assert problem in capfd.readouterr().err


def test_dpo_that_diverges_is_ended_by_the_guard(make: MakeRun) -> None:
    run = make("dpo", optimizer={"lr": 1e30}, schedule={"kind": "constant", "warmup_steps": 0})
    assert run.train() == 76
    warning = next(event for event in run.events() if event["kind"] == "warning")
    assert warning["code"] in ("nan_loss", "nan_grad")
    assert run.events()[-1]["kind"] == "warning"


def test_answers_that_are_swapped_midway_turn_the_margins(tmp_path: Path) -> None:
    run = train_kind("swapped", tmp_path, steps=40)
    margins, held_out = run.series("rewards/margins"), run.series("val_rewards/margins", "eval")
    assert margins[20] > 1.0
    assert margins[21] < -1.0
    assert held_out[20] > 1.0 > held_out[30]
