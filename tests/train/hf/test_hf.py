"""The script for HF Trainer with the installed transformers, on a tiny model, in this process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.host.run_configs import Config, changed
from support.host.tiny_training import (
    LOSSES,
    SEQ_LEN,
    RunFolder,
    prepared_config,
    with_own_validation,
)
from support.plan.rendered import script_text
from support.train.hf_attempts import (
    Attempts,
    CrashError,
    crash,
    terminate,
)
from support.train.operator_threads import operators_in_this_thread_alone

from trainer_runtime.core.config.lr_schedule import SCHEDULES, lr_factor
from trainer_runtime.core.files.manifest import verify
from trainer_runtime.train.data.batches import Corpus, TrainingData

pytestmark = pytest.mark.engine

STEPS = 24
SOURCES = ("main", "other")


@pytest.fixture(scope="module")
def attempt() -> Attempts:
    return Attempts()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config]:
    """A prepared corpus of two sources and the configuration of a run on it, with dropout.

    Of fixed lengths: where the last window ends with the text, `with_own_validation` changes it.
    """
    folder = tmp_path_factory.mktemp("hf")
    main, other = Path(__file__).read_bytes()[:15_000], script_text("hf", weights="new").encode()
    config = prepared_config(folder, "hf", main, other=other[:3_600])
    config["data"]["sources"][1]["weight"] = 3.0
    changes = {"steps": STEPS, "eval__every_steps": 6, "checkpoint__every": 6}
    return folder, changed(config, changes)


def corpus_of(config: Config) -> Corpus:
    data = config["data"]
    return Corpus.open(
        Path(data["cache_dir"]) / "data" / data["fingerprint"], SOURCES, data["seq_len"]
    )


@pytest.fixture
def make_run(tmp_path: Path, base: tuple[Path, Config]) -> Callable[..., RunFolder]:
    def make(name: str = "run", **changes: Any) -> RunFolder:
        return RunFolder(tmp_path / name, changed(base[1], changes))

    return make


@pytest.fixture(scope="module")
def straight(base: tuple[Path, Config], attempt: Attempts) -> Iterator[RunFolder]:
    run = RunFolder(base[0] / "straight", base[1])
    with operators_in_this_thread_alone():
        assert attempt(run) == 0
    run.printed = attempt.printed  # type: ignore[attr-defined]
    yield run
    shutil.rmtree(run.folder)


@pytest.mark.smoke
def test_a_training_records_everything_in_order_and_leaves_a_verified_model(
    straight: RunFolder,
) -> None:
    events = straight.events()
    assert (events[0]["kind"], events[0]["step"]) == ("started", 0)
    assert (events[-1]["kind"], events[-1]["step"]) == ("completed", STEPS)
    steps = [e["step"] for e in events if e["kind"] == "metric" and "loss" in e["values"]]
    assert steps == list(range(1, STEPS + 1))
    assert [e["step"] for e in events if e["kind"] == "eval"] == [6, 12, 18, 24]
    places = {(e["kind"], e["step"], e.get("action")): e["seq"] for e in events}
    for step in (6, 12, 18, 24):
        assert places["eval", step, None] < places["checkpoint", step, "saved"]
        assert places["checkpoint", step, "saved"] < places["checkpoint", step, "verified"]
    assert straight.steps_stored() == [12, 18, 24]
    assert verify(straight.folder / "final") == []
    assert not (straight.folder / "checkpoints/.writing-by-framework").exists()


@pytest.mark.smoke
def test_every_metric_of_a_step_is_there_at_full_precision(straight: RunFolder) -> None:
    metrics = [e["values"] for e in straight.events() if e["kind"] == "metric"]
    *steps, summary = metrics
    for values in steps:
        assert values.keys() == {
            "loss", "lr", "grad_norm", "clip_fraction", "tokens", "tokens_per_s", "step_time_s",
            "data_time_share", "tflops",
        }  # fmt: skip
    assert steps[-1]["tokens"] == STEPS * 8 * SEQ_LEN
    assert steps[0]["loss"] == pytest.approx(5.55, abs=0.2)
    assert steps[-1]["loss"] < steps[0]["loss"] - 0.5
    assert len(repr(steps[0]["loss"])) > 10
    assert summary["train_loss_mean"] == pytest.approx(sum(v["loss"] for v in steps) / STEPS)


def test_each_source_is_evaluated_and_the_mean_weighs_them(straight: RunFolder) -> None:
    values = [e["values"] for e in straight.events() if e["kind"] == "eval"][-1]
    assert values.keys() == {"val_loss", "val_perplexity", "val_loss/main", "val_loss/other"}
    mean = (values["val_loss/main"] + 3 * values["val_loss/other"]) / 4
    assert values["val_loss"] == pytest.approx(mean)


def test_files_of_ones_own_are_what_is_evaluated(
    straight: RunFolder, base: tuple[Path, Config], attempt: Attempts, tmp_path: Path
) -> None:
    config = changed(with_own_validation(base[1], tmp_path / "data"), {"checkpoint__every": 1000})
    run = RunFolder(tmp_path / "run", config)
    with operators_in_this_thread_alone():
        assert attempt(run) == 0
    own, held_out = (
        next(event["values"] for event in one.events() if event["kind"] == "eval")
        for one in (run, straight)
    )
    assert own["val_loss/own-main"] == held_out["val_loss/main"]
    assert own["val_loss/own-other"] == held_out["val_loss/other"]
    assert own["val_loss"] == held_out["val_loss"]


@pytest.mark.smoke
def test_the_log_shows_trainers_own_lines_and_no_bars(straight: RunFolder) -> None:
    printed = straight.printed  # type: ignore[attr-defined]
    lines = [line for line in printed.splitlines() if line.startswith("{'loss': ")]
    assert len(lines) == STEPS
    assert "'eval_main_loss': " in printed
    assert "it/s" not in printed


@pytest.mark.smoke
def test_the_final_folder_is_a_model_that_transformers_loads(straight: RunFolder) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(straight.folder / "final")
    tokenizer = AutoTokenizer.from_pretrained(straight.folder / "final")
    generated = model.generate(**tokenizer("def ", return_tensors="pt"), max_new_tokens=4)
    assert tokenizer.decode(generated[0]).startswith("def ")


def test_crashed_and_terminated_runs_equal_the_undisturbed_one_bit_for_bit(
    straight: RunFolder, make_run: Callable[..., RunFolder], attempt: Attempts
) -> None:
    run = make_run()
    with pytest.raises(CrashError):
        attempt(run, disturbance=(9, crash))
    assert attempt(run, disturbance=(15, terminate)) == 75
    assert "SIGTERM: saved at step 15" in attempt.printed
    assert run.steps_stored()[-1] == 15
    assert attempt(run) == 0
    assert [e["resumed_from"] for e in run.events() if e["kind"] == "started"] == [None, 6, 15]
    assert run.values_by_step(*LOSSES) == straight.values_by_step(*LOSSES)
    assert run.weights() == straight.weights()


def test_streamed_texts_are_trained_on_and_resumed_bit_for_bit(
    make_run: Callable[..., RunFolder], attempt: Attempts
) -> None:
    changes = {"data__form": "stream", "data__prepare": "stream", "steps": 12}
    undisturbed, stopped = make_run("straight", **changes), make_run("stopped", **changes)
    assert attempt(undisturbed) == 0
    assert attempt(stopped, disturbance=(5, terminate)) == 75
    assert attempt(stopped) == 0
    assert len(undisturbed.values_by_step("loss")) == 12 + 2
    assert stopped.values_by_step(*LOSSES) == undisturbed.values_by_step(*LOSSES)
    assert stopped.weights() == undisturbed.weights()


def test_llama_style_with_recomputed_activations_resumes_bit_for_bit(
    make_run: Callable[..., RunFolder], attempt: Attempts
) -> None:
    changes = {
        "model__style": "llama",
        "model__n_kv_head": 1,
        "compute__activation_checkpointing": True,
        "precision": "fp32",
        "steps": 12,
    }
    undisturbed, stopped = make_run("straight", **changes), make_run("stopped", **changes)
    assert attempt(undisturbed) == 0
    assert attempt(stopped, disturbance=(5, terminate)) == 75
    assert attempt(stopped) == 0
    assert stopped.values_by_step(*LOSSES) == undisturbed.values_by_step(*LOSSES)
    assert stopped.weights() == undisturbed.weights()


def test_the_last_mean_loss_is_of_the_attempts_own_steps(
    straight: RunFolder, make_run: Callable[..., RunFolder], attempt: Attempts
) -> None:
    run = make_run()
    shutil.copytree(
        straight.folder / "checkpoints/step-00000018", run.folder / "checkpoints/step-00000018"
    )
    assert attempt(run) == 0
    metrics = [e["values"] for e in run.events() if e["kind"] == "metric"]
    losses = [values["loss"] for values in metrics if "loss" in values]
    assert len(losses) == STEPS - 18
    assert metrics[-1]["train_loss_mean"] == pytest.approx(sum(losses) / len(losses))


def truncate(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 1000)


def lose_the_optimizer(folder: Path) -> None:
    (folder / "optimizer.pt").unlink()


def flip_a_bit(folder: Path) -> None:
    data = bytearray((folder / "rng_state.pth").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "rng_state.pth").write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "model.safetensors"),
        (lose_the_optimizer, "optimizer.pt"),
        (flip_a_bit, "rng_state.pth: chunk 0 differs"),
    ],
)
def test_a_damaged_newest_checkpoint_is_passed_with_its_reason(
    straight: RunFolder,
    make_run: Callable[..., RunFolder],
    attempt: Attempts,
    damage: Callable[[Path], None],
    reason: str,
) -> None:
    run = make_run()
    shutil.copytree(straight.folder / "checkpoints", run.folder / "checkpoints")
    damage(run.folder / "checkpoints/step-00000024")
    assert attempt(run, run.attempt_config(number=2, resume={"mode": "latest"})) == 0
    started = run.events("attempts/2")[0]
    assert started["resumed_from"] == 18
    assert [entry["step"] for entry in started["skipped"]] == [24]
    assert reason in started["skipped"][0]["reason"]
    assert f"checkpoint of step 24 skipped: {started['skipped'][0]['reason']}" in attempt.printed
    assert run.weights() == straight.weights()


def test_the_best_checkpoint_stays_beside_the_latest(
    make_run: Callable[..., RunFolder], attempt: Attempts
) -> None:
    # So high a rate that the loss is least before the end.
    run = make_run(
        optimizer__lr=0.5, schedule={"kind": "constant"}, checkpoint__keep_latest=1, steps=18
    )
    assert attempt(run) == 0
    losses = {e["step"]: e["values"]["val_loss"] for e in run.events() if e["kind"] == "eval"}
    best = min(losses, key=losses.__getitem__)
    assert run.steps_stored() == sorted({best, 18})


@pytest.mark.parametrize("kind", sorted(SCHEDULES))
def test_the_rates_are_those_of_our_schedule_to_the_last_step(
    make_run: Callable[..., RunFolder], attempt: Attempts, kind: str
) -> None:
    schedule = {"kind": kind, "warmup_steps": 3, "min_lr_ratio": 0.1}
    run = make_run(schedule=schedule, steps=10, eval__batches=0, checkpoint__every=100)
    assert attempt(run) == 0
    rates = [e["values"]["lr"] for e in run.events() if "lr" in e.get("values", ())]
    expected = [0.003 * lr_factor(kind, step, 10, 3, 0.1) for step in range(1, 11)]
    assert rates == pytest.approx(expected, rel=1e-12)


def test_a_rate_that_is_changed_before_a_resume_comes_into_force(
    straight: RunFolder, make_run: Callable[..., RunFolder], attempt: Attempts
) -> None:
    run = make_run(optimizer__lr=0.001)
    shutil.copytree(straight.folder / "checkpoints", run.folder / "checkpoints")
    resume = {"mode": "step", "candidates": [18]}
    assert attempt(run, run.attempt_config(number=2, resume=resume)) == 0
    rates = [e["values"]["lr"] for e in run.events("attempts/2") if "lr" in e.get("values", ())]
    expected = [0.001 * lr_factor("cosine", step, STEPS, 5, 0.1) for step in range(19, STEPS + 1)]
    assert rates == pytest.approx(expected, rel=1e-12)


def test_accumulated_batches_train_as_one_large_batch_does(
    make_run: Callable[..., RunFolder], attempt: Attempts
) -> None:
    curves = {}
    for micro_batch, accumulation in ((8, 1), (2, 4)):
        run = make_run(
            f"of-{micro_batch}",
            batch={"tokens": 256, "micro_batch": micro_batch, "accumulation": accumulation},
            model__dropout=0.0,
            precision="fp32",
            steps=3,
            eval__batches=0,
        )
        assert attempt(run) == 0
        by_step = run.values_by_step("loss", "grad_norm")
        curves[micro_batch] = [v for values in by_step.values() for v in values]
    assert curves[2] == pytest.approx(curves[8], rel=1e-3)


def test_the_model_is_given_the_same_tokens_as_nanogpts(
    base: tuple[Path, Config],
    make_run: Callable[..., RunFolder],
    attempt: Attempts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(make_run(eval__batches=0).folder)
    batches = attempt.first_batches(4)
    data = TrainingData(corpus_of(base[1]), [1.0, 3.0], base[1]["seed"])
    for batch in batches:
        inputs, targets = data.next_batch(4)
        assert torch.equal(batch["input_ids"], inputs)
        assert torch.equal(batch["labels"], targets)


@pytest.mark.parametrize("rate", [1e18, 1e38])
def test_a_diverging_run_ends_with_76_and_saves_nothing_that_is_no_number(
    make_run: Callable[..., RunFolder], attempt: Attempts, rate: float
) -> None:
    run = make_run(
        optimizer__lr=rate,
        checkpoint={"every": 1, "keep_latest": 30},
        schedule={"kind": "constant"},
        eval__every_steps=None,
    )
    assert attempt(run) == 76
    assert "guard: step" in attempt.errors
    events = run.events()
    warning = next(event for event in events if event["kind"] == "warning")
    last = [event for event in events if event["kind"] == "metric"][-1]
    assert warning["code"] in ("nan_loss", "nan_grad")
    assert last["step"] == warning["step"] == max(run.steps_stored()) + 1
    assert {"NaN", "Infinity"} & set(map(str, last["values"].values()))
    assert "completed" not in [event["kind"] for event in events]
    assert all(verify(path) == [] for path in run.folder.glob("checkpoints/step-*"))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"optimizer__name": "rprop"}, "rprop"),
        ({"data__fingerprint": "0" * 16}, "not prepared"),
        ({"model__vocab_size": 100}, "vocab_size 100 is less"),
        ({"model__n_head": 3}, "n_head must divide"),
        ({"attempt": {"number": 1, "resume": {"mode": "step", "candidates": [7]}}}, "step 7"),
    ],
)
def test_what_can_not_be_trained_ends_with_77_and_a_reason(
    make_run: Callable[..., RunFolder], attempt: Attempts, changes: Config, problem: str
) -> None:
    assert attempt(make_run(**changes)) == 77
    assert problem in attempt.errors


def test_training_starts_from_a_models_folder_with_its_weights(
    straight: RunFolder, make_run: Callable[..., RunFolder], attempt: Attempts
) -> None:
    run = make_run(model__path=str(straight.folder / "final"), model__n_layer=None)
    assert attempt(run, disturbance=(1, terminate)) == 75
    [(loss,)] = [values for key, values in run.values_by_step("loss").items() if key[0] == "metric"]
    assert loss < straight.values_by_step("loss")["metric", 1][0] - 0.5


def test_tensorboards_files_lie_in_the_runs_folder(
    make_run: Callable[..., RunFolder], attempt: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "set by the attempt, and put back here")
    run = make_run(tracking={"tensorboard": True}, steps=2, eval__batches=0)
    assert attempt(run) == 0
    assert len(list(run.folder.glob("tensorboard/events.out.tfevents.*"))) == 1
