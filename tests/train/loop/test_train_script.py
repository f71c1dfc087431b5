"""The real train.py on a tiny model: in processes of its own where these are ended or compared."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.host.run_configs import Config, changed
from support.host.tiny_training import (
    LOSSES,
    REPOSITORY,
    SEQ_LEN,
    TinyRun,
    wait_for,
    with_own_validation,
)
from support.plan.rendered import SCRIPT, load_script
from support.runs.running_run import LONGEST_S, begin_with
from support.session.tiers import at_length
from support.train.litgpt_training import as_a_process_of_its_own
from support.train.nanogpt_attempts import config_on, train_here
from support.train.operator_threads import operators_in_this_thread_alone

from trainer_runtime.core.answers.sampled import EVENT
from trainer_runtime.core.files.manifest import verify
from trainer_runtime.train.attempt.config import read_config
from trainer_runtime.train.checkpoints.cadence import best_interval_s
from trainer_runtime.train.loop import sampling
from trainer_runtime.train.loop.drawing import TextModel

FAULT_ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "3"))
STEPS = 40
# Run by Python before the trainer's own code.
LISTING_IMPORTS = """\
import atexit, pathlib, sys
atexit.register(lambda: pathlib.Path("imported.txt").write_text("\\n".join(sys.modules)))
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config]:
    """A prepared corpus and the configuration of a run on it, with dropout and bf16."""
    folder = tmp_path_factory.mktemp("training")
    return folder, config_on(folder, __file__)


@pytest.fixture
def make_run(tmp_path: Path, base: tuple[Path, Config]) -> Callable[..., TinyRun]:
    def make(name: str = "run", **changes: Any) -> TinyRun:
        return TinyRun(tmp_path / name, changed(base[1], changes))

    return make


@pytest.fixture(scope="module")
def undisturbed(base: tuple[Path, Config]) -> Iterator[TinyRun]:
    begin_with(base[0] / "listing", LISTING_IMPORTS)
    run = TinyRun(base[0] / "undisturbed", base[1], first=base[0] / "listing")
    code, run.output, errors = run.train()  # type: ignore[attr-defined]
    assert (code, errors) == (0, "")
    yield run
    shutil.rmtree(run.folder)


def test_a_training_records_everything_in_order_and_leaves_a_verified_model(
    undisturbed: TinyRun,
) -> None:
    events = undisturbed.events()
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert events[0]["kind"] == "started"
    assert (events[0]["step"], events[0]["resumed_from"], events[0]["skipped"]) == (0, None, [])
    assert (events[-1]["kind"], events[-1]["step"]) == ("completed", STEPS)
    assert events[-1]["final"] == "final"
    assert [e["step"] for e in events if e["kind"] == "metric"] == list(range(1, STEPS + 1))
    assert [e["step"] for e in events if e["kind"] == "eval"] == [10, 20, 30, 40]
    places = {(e["kind"], e["step"], e.get("action")): e["seq"] for e in events}
    for step in (10, 20, 30, 40):
        metric, evaluated = places["metric", step, None], places["eval", step, None]
        assert metric < evaluated < places["checkpoint", step, "saved"]
        assert places["checkpoint", step, "saved"] < places["checkpoint", step, "verified"]
    assert places["checkpoint", STEPS, "verified"] < places["completed", STEPS, None]
    assert verify(undisturbed.folder / "final") == []
    assert undisturbed.steps_stored() == [20, 30, 40]


def test_a_training_that_compiles_nothing_imports_no_compiler(undisturbed: TinyRun) -> None:
    imported = (undisturbed.folder / "imported.txt").read_text().splitlines()
    assert {"torch", "trainer_runtime.train.loop.run"} <= set(imported)
    assert not {"torch._dynamo", "torch._inductor", "sympy"} & set(imported)


def test_a_training_leaves_all_operators_to_one_thread(make_run: Callable[..., TinyRun]) -> None:
    run = make_run(steps=6, checkpoint__every=2, eval__every_steps=3)
    with operators_in_this_thread_alone():
        assert train_here(run) == 0
    assert run.steps_stored() == [2, 4, 6]


def test_the_losses_fall_and_every_metric_is_there(undisturbed: TinyRun) -> None:
    metrics = [event["values"] for event in undisturbed.events() if event["kind"] == "metric"]
    assert metrics[0]["loss"] == pytest.approx(5.55, abs=0.2)
    assert metrics[-1]["loss"] < metrics[0]["loss"] - 1.0
    for values in metrics:
        assert values.keys() >= {
            "loss", "lr", "grad_norm", "clip_fraction", "tokens", "tokens_per_s", "step_time_s",
            "data_time_share", "tflops",
        }  # fmt: skip
        assert "mfu" not in values  # of a peak that a CPU does not have
    assert metrics[-1]["tokens"] == STEPS * 8 * SEQ_LEN


def test_a_person_reads_steps_and_evaluations(undisturbed: TinyRun) -> None:
    output = undisturbed.output  # type: ignore[attr-defined]
    assert "step 1/40 | loss 5." in output
    assert "step 40/40 | loss " in output
    assert "step 40: val_loss " in output


def test_the_trained_model_writes_the_same_text_for_the_same_seed(undisturbed: TinyRun) -> None:
    written = subprocess.run(
        [sys.executable, SCRIPT, "--sample", "def ", "--tokens", "30", "--seed", "1"],
        cwd=undisturbed.folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert written.startswith("def ")
    with as_a_process_of_its_own(undisturbed.folder):
        script = load_script(undisturbed.folder)
        same, other = (script.write_text("def ", 30, 0.8, seed) for seed in (1, 2))
    assert written == same + "\n" != other + "\n"


def test_a_run_of_another_tokenizer_writes_text_by_its_copy_beside_the_model(
    undisturbed: TinyRun, tmp_path: Path
) -> None:
    run = shutil.copytree(undisturbed.folder, tmp_path / "run")
    path = run / "final" / "run_config.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(changed(document, {"data__tokenizer": "/gone/tokenizer"})))
    text = sampling.TrainedModel(read_config(path), {}, path.parent)
    model = TextModel.of(lambda tokens: torch.zeros(257), text.tokenizer)
    tokens = model.encode("to be")
    assert tokens == list(b"to be")
    assert model.encode("") == [256]
    assert model.decode(tokens) == "to be"
    assert model.ends == {256}


def test_texts_that_a_training_writes_change_no_weight(
    undisturbed: TinyRun, make_run: Callable[..., TinyRun]
) -> None:
    samples = {"prompts": ["def ", "1"], "every": 15, "max_tokens": 6, "temperature": 0.8}
    run = make_run(eval__samples=samples)
    assert exit_code(run) == 0
    assert run.weights() == undisturbed.weights()
    written = [event for event in run.events() if event["kind"] == EVENT]
    assert [(e["step"], e["prompt"]) for e in written] == [
        (step, prompt) for step in (15, 30, STEPS) for prompt in ("def ", "1")
    ]
    assert all(event["tokens"] <= 6 and "\x1b" not in event["text"] for event in written)


def test_killed_and_terminated_runs_equal_the_undisturbed_one_bit_for_bit(
    undisturbed: TinyRun, make_run: Callable[..., TinyRun]
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    run = make_run()
    for _ in range(FAULT_ROUNDS - 1):
        run.end_at(moments.randrange(1, STEPS), signal.SIGKILL)
    if saved_on_sigterm(run, moments.randrange(2, STEPS - 2)):
        stopped_at = run.steps_stored()[-1]
        assert run.train()[0] == 0
        assert run.events()[-1]["kind"] == "completed"
        assert stopped_at in [event.get("resumed_from") for event in run.events()]
    assert run.values_by_step(*LOSSES) == undisturbed.values_by_step(*LOSSES)
    assert run.weights() == undisturbed.weights()


def saved_on_sigterm(run: TinyRun, step: int) -> bool:
    """Whether SIGTERM at a step found a training; else it came to an end that was complete."""
    code = run.end_at(step, signal.SIGTERM)
    if code != 75:
        assert code == 0
        assert run.events()[-1]["kind"] == "completed"
    return code == 75


@pytest.mark.parametrize(
    "changes",
    [
        *at_length(
            {"model__style": "llama"},
            {
                "model__style": "modern",
                "model__value_embeddings": True,
                "model__ngram_embeddings": 512,
                "model__window": 24,
                "data__document_masks": True,
            },
        ),
    ],
    ids=lambda changes: changes["model__style"],
)
def test_another_style_with_grouped_keys_resumes_bit_for_bit(
    make_run: Callable[..., TinyRun], changes: dict[str, Any]
) -> None:
    changes = {**changes, "model__n_kv_head": 1, "steps": 12, "eval__every_steps": 4}
    straight, stopped = make_run("straight", **changes), make_run("stopped", **changes)
    assert exit_code(straight) == 0
    saved_on_sigterm(stopped, 4)
    assert stopped.train()[0] == 0
    assert stopped.values_by_step(*LOSSES) == straight.values_by_step(*LOSSES)
    assert stopped.weights() == straight.weights()
    assert sampled(stopped.folder) == sampled(straight.folder)


def sampled(folder: Path) -> str:
    """What the script of a finished run writes with ./final."""
    command = [sys.executable, SCRIPT, "--sample", "def ", "--tokens", "8"]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("def ")
    return done.stdout


def test_a_validation_loss_is_the_same_whatever_micro_batch_fits(
    make_run: Callable[..., TinyRun],
) -> None:
    losses = []
    for size in (4, 2):
        changes = {"batch__micro_batch": size, "batch__accumulation": 8 // size, "steps": 1}
        run = make_run(
            f"by-{size}", eval__batch_size=4, model__dropout=0.0, precision="fp32", **changes
        )
        assert exit_code(run) == 0
        losses += run.values_by_step("val_loss")["eval", 1]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_files_of_ones_own_are_what_is_validated_and_the_sources_are_trained_on_whole(
    undisturbed: TinyRun, base: tuple[Path, Config], tmp_path: Path
) -> None:
    run = TinyRun(tmp_path / "run", with_own_validation(base[1], tmp_path / "data"))
    assert exit_code(run) == 0
    first = ("eval", base[1]["eval"]["every_steps"])
    assert run.values_by_step("val_loss")[first] == undisturbed.values_by_step("val_loss")[first]


def test_a_damaged_newest_checkpoint_is_passed_with_its_reason(
    undisturbed: TinyRun, make_run: Callable[..., TinyRun], capfd: pytest.CaptureFixture[str]
) -> None:
    run = make_run()
    shutil.copytree(undisturbed.folder / "checkpoints", run.folder / "checkpoints")
    damaged = run.folder / "checkpoints/step-00000040/optimizer.safetensors"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    assert exit_code(run, number=2, resume={"mode": "latest", "candidates": [40, 30]}) == 0
    events = run.events("attempts/2")
    reason = "optimizer.safetensors: chunk 0 differs"
    assert events[0]["attempt"] == 2
    assert events[0]["resumed_from"] == 30
    assert events[0]["skipped"] == [{"step": 40, "reason": reason}]
    assert [(e["what"], e["value"]) for e in events if e["kind"] == "decision"] == [
        ("skip_checkpoint", 40),
        ("resume", 30),
    ]
    assert f"checkpoint of step 40 skipped: {reason}" in capfd.readouterr().out
    assert run.weights() == undisturbed.weights()


def test_skipped_data_changes_what_follows_and_is_kept_across_a_resume(
    undisturbed: TinyRun, make_run: Callable[..., TinyRun]
) -> None:
    skip = [{"at_step": 30, "sequences": 16}]
    straight, resumed = make_run("straight", data__skip=skip), make_run("resumed", data__skip=skip)
    assert exit_code(straight) == 0
    shutil.copytree(undisturbed.folder / "checkpoints", resumed.folder / "checkpoints")
    resume = {"mode": "step", "candidates": [30]}
    assert exit_code(resumed, number=2, resume=resume) == 0
    assert resumed.weights() == straight.weights() != undisturbed.weights()


@pytest.mark.parametrize("rate", [1e18, 1e38])
def test_a_diverging_run_ends_with_76_and_saves_nothing_that_is_no_number(
    make_run: Callable[..., TinyRun], rate: float, capfd: pytest.CaptureFixture[str]
) -> None:
    run = make_run(optimizer__lr=rate, checkpoint__every=1, schedule={"kind": "constant"})
    assert exit_code(run) == 76
    assert "guard: step" in capfd.readouterr().err
    events = run.events()
    warning = next(event for event in events if event["kind"] == "warning")
    assert "completed" not in [event["kind"] for event in events]
    if warning["code"] in ("nan_loss", "nan_grad"):
        last = [event for event in events if event["kind"] == "metric"][-1]
        assert last["step"] == warning["step"]
        assert {"NaN", "Infinity"} & set(map(str, last["values"].values()))
        assert warning["values"] == last["values"]
        assert warning["step"] not in run.steps_stored()
    assert all(verify(path) == [] for path in run.folder.glob("checkpoints/step-*"))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"compute__device": "cuda"}, "no CUDA device"),
        ({"precision": "fp16"}, "fp16 is for CUDA"),
        ({"compute__fp8_lm_head": True}, "needs a GPU with fp8"),
        ({"data__fingerprint": "0" * 16}, "not prepared"),
        ({"model__vocab_size": 100}, "vocab_size 100 is less"),
        ({"attempt": {"number": 1, "resume": {"mode": "step", "candidates": [7]}}}, "step 7"),
    ],
)
def test_what_can_not_be_trained_ends_with_77_and_a_reason(
    make_run: Callable[..., TinyRun],
    changes: Config,
    problem: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(make_run(**changes)) == 77
    assert problem in capfd.readouterr().err


def exit_code(run: TinyRun, **attempt: Any) -> int:
    """What the script of a run returns to the shell, in this process, which has PyTorch already."""
    name = run.attempt_config(**attempt) if attempt else "config.json"
    with as_a_process_of_its_own(run.folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [SCRIPT, name])
        code: int = load_script(run.folder).main()
    return code


def test_a_config_of_another_style_than_the_script_s_is_refused(
    make_run: Callable[..., TinyRun], capfd: pytest.CaptureFixture[str]
) -> None:
    run = make_run()
    run.write_config("config.json", changed(run.config, {"model__style": "llama"}))
    assert exit_code(run) == 77
    assert "made for style gpt2, config.json asks for llama" in capfd.readouterr().err
    assert run.events() == []


def test_sigusr2_dumps_the_stacks_and_training_continues(make_run: Callable[..., TinyRun]) -> None:
    # More steps than it can take, however late the signals are.
    run = make_run(steps=10**6, eval__every_steps=10**6, checkpoint__every=10**6)
    process = run.start()
    wait_for(process, lambda: len(run.events()) > 2)
    process.send_signal(signal.SIGUSR2)
    wait_for(process, lambda: len(run.events()) > 50)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 75
    assert "most recent call first" in errors
    assert "train.py" in errors


def test_an_automatic_cadence_is_decided_after_twenty_steps(
    make_run: Callable[..., TinyRun],
) -> None:
    # More steps than it can take until that save is verified, as slow as the disk may be.
    run = make_run(steps=10**6, checkpoint={"every": "10m", "every_is_auto": True})

    def decisions() -> list[Config]:
        return [event for event in run.events() if event["kind"] == "decision"]

    process = run.start()
    wait_for(process, lambda: bool(decisions()))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LONGEST_S)
    assert process.returncode == 75
    [decided] = decisions()
    assert decided["what"] == "checkpoint_every"
    measured = re.match(
        r"a save stalls training for (\S+) s and is written in (\S+) s; (\S+) h", decided["reason"]
    )
    assert measured is not None
    stall_s, write_s, job_h = map(float, measured.groups())
    expected_s = best_interval_s(stall_s, write_s, job_h * 3600)
    assert float(decided["value"].removesuffix("s")) == pytest.approx(expected_s, rel=0.03)
    saved = [event["step"] for event in run.events() if event.get("action") == "saved"]
    assert saved[0] == 20
