"""The real scripts of TRL's methods, in this process, on a tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.train.operator_threads import operators_in_this_thread_alone
from support.train.preference_data import (
    TrlRun,
    make_run,
    pairs,
    train_kind,
    write_rows,
)
from support.train.preference_runs import LORA, MakeRun, from_step, resumed, weights

from trainer_runtime.core.files.manifest import verify

pytestmark = pytest.mark.engine
REWARD = (
    "def reward_length(completions, **columns):\n    return [float(len(c)) for c in completions]\n"
)


@pytest.fixture(scope="module")
def aligned(tmp_path_factory: pytest.TempPathFactory, model: Path, preferences: Path) -> TrlRun:
    """DPO, trained to its end without a break."""
    run = make_run(tmp_path_factory.mktemp("aligned") / "run", model, preferences, "dpo")
    with operators_in_this_thread_alone():
        assert run.train() == 0
    return run


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
