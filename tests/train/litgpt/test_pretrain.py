"""LitGPT's own `pretrain` under a run's promises, by the real script on a tiny model."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch
from support.host.run_configs import Config, changed
from support.host.tiny_training import REPOSITORY, with_own_validation
from support.train.litgpt_training import STEPS, Run, assert_same_tensors, pretraining
from support.train.operator_threads import operators_in_this_thread_alone

from trainer_runtime.core.config.lr_schedule import lr_factor
from trainer_runtime.core.files.manifest import verify
from trainer_runtime.train.litgpt.wrapper import SEAMS

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("litgpt")
    return pretraining(folder)


@pytest.fixture(scope="module")
def straight(base: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that was trained without an interruption."""
    run = Run(tmp_path_factory.mktemp("litgpt") / "straight", base)
    with operators_in_this_thread_alone():
        assert run.train() == 0
    return run


@pytest.mark.smoke
def test_every_step_is_recorded_in_full_precision(straight: Run, base: Config) -> None:
    steps = {event["step"]: event["values"] for event in straight.events_of() if is_step(event)}
    assert list(steps) == list(range(1, STEPS + 1))
    assert steps[STEPS]["loss"] < steps[1]["loss"]
    assert steps[2]["loss"] == pytest.approx(5.55, abs=0.3)  # about log(257)
    assert len(str(steps[2]["loss"])) > 8
    assert steps[2]["tokens"] == 2 * base["batch"]["tokens"]
    assert [steps[step]["lr"] for step in steps] == pytest.approx(rates(base))


def test_held_out_losses_are_recorded_by_source_and_the_last_step_is_evaluated(
    straight: Run,
) -> None:
    evaluations = {
        event["step"]: event["values"] for event in straight.events_of() if event["kind"] == "eval"
    }
    assert list(evaluations) == [4, 8, 12]
    last = evaluations[12]
    mixed = (3 * last["val_loss/main"] + last["val_loss/docs"]) / 4
    assert last["val_loss"] == pytest.approx(mixed)


def test_files_of_ones_own_are_what_is_evaluated(
    straight: Run, base: Config, tmp_path: Path
) -> None:
    own = Run(tmp_path / "run", with_own_validation(base, tmp_path / "data"))
    assert own.train() == 0
    values, held_out = (
        next(event["values"] for event in run.events_of() if event["kind"] == "eval")
        for run in (own, straight)
    )
    # One token of the training differs (see `with_own_validation`), which it meets in four steps.
    for name, of in (("/own-main", "/main"), ("/own-docs", "/docs"), ("", "")):
        expected = held_out[f"val_loss{of}"]
        assert values[f"val_loss{name}"] == pytest.approx(expected, rel=2e-4)


def test_checkpoints_are_sealed_and_hold_what_litgpt_starts_from(straight: Run) -> None:
    assert straight.steps_stored() == [4, 8, 12]
    newest = straight.folder / "checkpoints/step-00000012"
    assert verify(newest) == []
    assert {path.name for path in newest.iterdir()} == {
        "hyperparameters.yaml",
        "lit_model.pth",
        "manifest.json",
        "model_config.yaml",
        "rank-0.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }


@pytest.mark.smoke
def test_the_final_model_speaks_through_litgpt(straight: Run) -> None:
    from litgpt import GPT, Config, Tokenizer

    final = straight.folder / "final"
    assert verify(final) == []
    model = GPT(Config.from_file(final / "model_config.yaml"))
    model.load_state_dict(torch.load(final / "lit_model.pth"))
    text = Tokenizer(final).encode("def main")
    assert text.tolist() == list(b"def main")
    assert model(text[None].long()).shape == (1, len(text), 257)


def test_the_final_model_gives_the_same_logits_in_transformers(straight: Run) -> None:
    assert_same_logits(straight.folder / "final")


def test_a_final_model_of_style_gpt2_is_gpt_neox_to_transformers(
    base: Config, tmp_path: Path
) -> None:
    changes = {"model__style": "gpt2", "model__n_kv_head": 2, "steps": 1}
    run = Run(tmp_path / "run", changed(base, changes))
    assert run.train() == 0
    assert_same_logits(run.folder / "final")


def assert_same_logits(final: Path) -> None:
    """What transformers loads from `hf` computes what LitGPT's model computes."""
    from litgpt import GPT
    from litgpt import Config as LitGPTConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ours = GPT(LitGPTConfig.from_file(final / "model_config.yaml"))
    ours.load_state_dict(torch.load(final / "lit_model.pth"))
    theirs = AutoModelForCausalLM.from_pretrained(final / "hf")
    tokens = AutoTokenizer.from_pretrained(final / "hf")("def main", return_tensors="pt").input_ids
    with torch.no_grad():
        torch.testing.assert_close(theirs.eval()(tokens).logits, ours.eval()(tokens))


def test_a_truncated_newest_checkpoint_is_refused_and_the_resumed_run_is_the_same(
    straight: Run, base: Config, tmp_path: Path
) -> None:
    run = Run(tmp_path / "run", base)
    for step in (4, 8):
        name = f"checkpoints/step-{step:08d}"
        shutil.copytree(straight.folder / name, run.folder / name)
    torn = run.folder / "checkpoints/step-00000008/lit_model.pth"
    torn.write_bytes(torn.read_bytes()[:-100])

    assert run.train(number=2) == 0

    started = run.events_of(2)[0]
    assert started["resumed_from"] == 4
    assert [entry["step"] for entry in started["skipped"]] == [8]
    assert "lit_model.pth" in started["skipped"][0]["reason"]
    expected = {key: values for key, values in straight.values_by_step().items() if key[1] > 4}
    assert run.values_by_step(2) == expected
    assert_same_tensors(run.model(), straight.model())


def test_a_run_that_is_complete_only_writes_its_final_model_again(
    straight: Run, tmp_path: Path
) -> None:
    run = Run(tmp_path / "run", straight.config)
    shutil.copytree(straight.folder, run.folder, dirs_exist_ok=True)
    shutil.rmtree(run.folder / "final")
    assert run.train(number=2) == 0
    assert run.values_by_step(2) == {}
    assert run.events_of(2)[-1]["kind"] == "completed"
    assert_same_tensors(run.model(), straight.model())


def test_another_schedule_and_skipped_data_are_litgpts_as_well(
    straight: Run, base: Config, tmp_path: Path
) -> None:
    changes = {
        "schedule__kind": "wsd",
        "data__skip": [{"at_step": 1, "sequences": 8}],
        "steps": 5,
        "eval": {"every_steps": None, "batches": 1},
        "optimizer__name": "sgd",
        "optimizer__grad_clip": 0.0,
        "compute__activation_checkpointing": True,
        "tracking": {"tensorboard": True},
    }
    config = changed(base, changes)
    run = Run(tmp_path / "run", config)

    assert run.train() == 0

    steps = [event["values"] for event in run.events_of() if is_step(event)]
    assert [values["lr"] for values in steps] == pytest.approx(rates(config))
    assert {values["clip_fraction"] for values in steps} == {0.0}
    first = straight.values_by_step()["metric", 1]
    assert steps[0]["loss"] == pytest.approx(first[0], rel=1e-6)
    assert [event["step"] for event in run.events_of() if event["kind"] == "eval"] == [5]
    assert list((run.folder / "out/logs/tensorboard").rglob("events.out.*"))


def test_pretraining_starts_from_a_model_of_litgpts(
    straight: Run, base: Config, tmp_path: Path
) -> None:
    final = str(straight.folder / "final")
    changes = {"model__path": final, "model__style": None, "steps": 2, "schedule__warmup_steps": 0}
    config = changed(base, {**changes, "eval__every_steps": None})
    run = Run(tmp_path / "run", config)
    assert run.train() == 0
    last = straight.values_by_step()["metric", STEPS][0]
    assert run.values_by_step()["metric", 1][0] == pytest.approx(last, abs=0.3)


def test_a_step_that_is_no_number_ends_the_run_before_the_weights_change(
    base: Config, tmp_path: Path
) -> None:
    run = Run(tmp_path / "run", changed(base, {"optimizer__lr": 1e30, "checkpoint__every": 1}))
    assert run.train() == 76
    [warning] = [event for event in run.events_of() if event["kind"] == "warning"]
    assert warning["code"].startswith("nan_")
    assert run.steps_stored()[-1] == warning["step"] - 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model__dropout": 0.1}, "no dropout"),
        ({"model__vocab_size": 256}, "the model has 256 tokens, the tokenizer 257"),
        ({"compute__strategy": "zero2"}, "compute.strategy zero2 is not for LitGPT"),
    ],
)
def test_what_litgpt_cant_train_is_unusable(
    base: Config,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    changes: Config,
    reason: str,
) -> None:
    assert Run(tmp_path / "run", changed(base, changes)).train() == 77
    assert reason in capfd.readouterr().err


def test_a_file_that_litgpt_refuses_is_unusable(
    base: Config, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path / "run", base)
    [file] = run.folder.rglob("litgpt.yaml")
    text = file.read_text()
    file.write_text(re.sub(r"n_layer: \d+", "n_layer: two", text))
    assert file.read_text() != text
    assert run.train() == 77
    assert "refused litgpt.yaml" in capfd.readouterr().err


def test_another_litgpt_is_refused_by_its_version_and_by_its_seams(
    base: Config,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(tmp_path / "run", base)
    with monkeypatch.context() as patched:
        patched.delattr("litgpt.pretrain.get_lr")
        assert run.train() == 77
        assert "litgpt.pretrain has no get_lr: it is not litgpt 0.5.13" in capfd.readouterr().err
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.6.0")
    assert run.train() == 77
    assert "litgpt 0.5.13 is needed here, there is 0.6.0" in capfd.readouterr().err


@pytest.mark.smoke
def test_the_docs_name_whatever_is_replaced_in_litgpt() -> None:
    page = (REPOSITORY / "docs/litgpt.md").read_text()
    assert [seam.name for seam in SEAMS if f"| `{seam.name}` |" not in page] == []


def is_step(event: Config) -> bool:
    return event["kind"] == "metric"


def rates(config: Config) -> list[float]:
    schedule, steps = config["schedule"], config["steps"]
    of_step = (schedule["kind"], steps, schedule["warmup_steps"], schedule["min_lr_ratio"])
    kind, *others = of_step
    return [
        config["optimizer"]["lr"] * lr_factor(kind, step, *others) for step in range(1, steps + 1)
    ]
