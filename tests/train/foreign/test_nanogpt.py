"""nanoGPT's checkpoints, read as data and renamed into ours."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from support.plan.rendered import load_script, write_script
from support.train.output_folders import (
    BLOCK,
    VOCABULARY,
    WIDTH,
    NanoModel,
    text_batch,
    write_nanogpt,
)

from trainer_runtime.core.files.manifest import read, verify
from trainer_runtime.core.protocol.lines import complete_lines, decode
from trainer_runtime.train.attempt import optimizer_state
from trainer_runtime.train.attempt.config import ModelConfig, OptimizerConfig
from trainer_runtime.train.attempt.optimizer import make_optimizer
from trainer_runtime.train.checkpoints.restore import Restored, load_model, read_checkpoint
from trainer_runtime.train.foreign import take_over
from trainer_runtime.train.foreign.inspect import inspect_output
from trainer_runtime.train.foreign.nanogpt import renamed
from trainer_runtime.train.foreign.records import files_of, stamp_of

TEXT = b"the loss falls slowly while every step reads another line\n" * 60
STEPS = 30


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nanogpt") / "out"
    write_nanogpt(folder, TEXT, STEPS)
    return folder


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    """A copy that may be spoilt."""
    return Path(shutil.copytree(made, tmp_path / "out"))


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("script")
    write_script(folder, {"framework": "nanogpt", "model": {"style": "gpt2"}})
    return load_script(folder)


def inspected(folder: Path) -> dict[str, Any]:
    answer = inspect_output(str(folder))
    json.dumps(answer, allow_nan=False)
    output: dict[str, Any] = answer["output"]
    return output


def problem(folder: Path) -> str:
    return str(inspected(folder)["checkpoints"][0]["problem"])


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = torch.load(path, weights_only=True)
    change(document)
    torch.save(document, path)


def test_a_whole_checkpoint_gives_its_step_and_its_settings(made: Path) -> None:
    before = stamp_of(made)
    output = inspected(made)
    assert output["framework"] == "nanogpt"
    found = output["checkpoints"][0]
    assert (found["path"], found["step"], found["problem"]) == ("ckpt.pt", STEPS, None)
    assert found["size_bytes"] == (made / "ckpt.pt").stat().st_size
    assert output["shape"] == {
        "model.n_layer": 1,
        "model.n_head": 2,
        "model.d_model": WIDTH,
        "model.vocab_size": VOCABULARY,
        "model.style": "gpt2",
        "data.seq_len": BLOCK,
    }
    described = output["described"]
    assert described["optimizer.betas"] == [0.9, 0.95]
    assert described["schedule.min_lr_ratio"] == 0.1
    assert described["batch.tokens"] == 8 * BLOCK
    assert described["steps"] == STEPS + 20
    assert described["precision"] == "fp32"  # on a CPU, whatever its dtype
    assert stamp_of(made) == before


def test_the_renamed_model_and_optimizer_continue_as_the_original_would(
    made: Path, script: ModuleType
) -> None:
    document = torch.load(made / "ckpt.pt", weights_only=True)
    theirs = NanoModel(bias=False)
    theirs.load_state_dict(document["model"])
    matrices = [parameter for parameter in theirs.parameters() if parameter.dim() >= 2]
    vectors = [parameter for parameter in theirs.parameters() if parameter.dim() < 2]
    their_optimizer = torch.optim.AdamW([{"params": matrices}, {"params": vectors}])
    their_optimizer.load_state_dict(document["optimizer"])

    weights, moments = renamed(made / "ckpt.pt")
    ours = script.GPT(ModelConfig(1, 2, 2, WIDTH, 4 * WIDTH, VOCABULARY), BLOCK)
    load_model(ours, weights)
    our_optimizer = make_optimizer(ours, OptimizerConfig(lr=3e-3))
    optimizer_state.load_state_tensors(our_optimizer, ours, moments)

    generator = torch.Generator().manual_seed(11)
    for _ in range(3):
        batch = text_batch(TEXT, 4, generator)
        expected, loss = theirs(*batch), ours(*batch)
        assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
        for one, optimizer in ((expected, their_optimizer), (loss, our_optimizer)):
            optimizer.zero_grad()
            one.backward()
            optimizer.step()


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.01, 0.5, 0.9, 0.9999])
def test_a_torn_checkpoint_is_refused(out: Path, share: float) -> None:
    path = out / "ckpt.pt"
    os.truncate(path, int(path.stat().st_size * share))
    output = inspected(out)
    assert any(word in problem(out) for word in ("torn", "empty"))
    assert output["described"] == {}


def test_a_flipped_bit_in_a_record_is_seen_by_the_archives_own_checksum(out: Path) -> None:
    path = out / "ckpt.pt"
    weights = torch.load(path, weights_only=True)["model"]["transformer.wpe.weight"]
    data = bytearray(path.read_bytes())
    at = data.index(weights.numpy().tobytes()[:64])
    for offset in (0, 17, 63):
        data[at + offset] ^= 1
        path.write_bytes(data)
        assert "differs from its CRC-32" in problem(out)
        data[at + offset] ^= 1
    path.write_bytes(data)
    assert problem(out) == "None"


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def test_a_checkpoint_that_would_run_code_is_refused_and_runs_nothing(
    out: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "it-ran"
    document = torch.load(out / "ckpt.pt", weights_only=True)
    torch.save({**document, "config": Evil(marker)}, out / "ckpt.pt")
    assert "names posix.system, which is code" in problem(out)
    assert not marker.exists()


def test_a_model_with_biases_is_refused_with_a_way_out(tmp_path: Path) -> None:
    write_nanogpt(tmp_path / "out", TEXT, 1, bias=True)
    reason = problem(tmp_path / "out")
    assert "has biases" in reason
    assert "model.path" in reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d["model"]["transformer.wpe.weight"].fill_(float("nan")), "holds NaN"),
        (lambda d: d["optimizer"]["state"][0]["exp_avg"].fill_(float("inf")), "holds NaN"),
        (lambda d: d.pop("optimizer"), "lacks optimizer"),
        (lambda d: d["optimizer"]["state"].pop(0), "lacks the state of a parameter"),
        (lambda d: d["optimizer"].update(state=[]), "not nanoGPT's AdamW"),
        (lambda d: d["model"].pop("transformer.wpe.weight"), "not nanoGPT's own"),
        (lambda d: d["model_args"].update(n_embd=64), "not of the sizes in model_args"),
        (lambda d: d["model_args"].update(n_layer=-1), "n_layer is not a valid size"),
        (lambda d: d.update(iter_num="many"), "not a number of steps"),
        (lambda d: d.update(model=3), "model is of another form"),
        (lambda d: d["optimizer"].update(param_groups=[1, 2]), "misshapen"),
    ],
)
def test_a_checkpoint_that_does_not_agree_with_itself_is_refused(
    out: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    changed(out / "ckpt.pt", change)
    assert reason in problem(out)


def test_names_of_a_compiled_model_and_masks_of_old_versions_are_known(out: Path) -> None:
    def rename(document: dict[str, Any]) -> None:
        weights = {f"_orig_mod.{name}": value for name, value in document["model"].items()}
        weights["_orig_mod.transformer.h.0.attn.bias"] = torch.ones(1, 1, BLOCK, BLOCK)
        document["model"] = weights

    before, _ = renamed(out / "ckpt.pt")
    changed(out / "ckpt.pt", rename)
    after, _ = renamed(out / "ckpt.pt")
    assert all(before[name].equal(after[name]) for name in before)


def config_of(folder: Path, out: Path, step: int = STEPS) -> Path:
    """The config of an attempt that begins with the checkpoint, in a run's folder."""
    adopted = {"folder": str(out), "path": "ckpt.pt", "step": step}
    document = {
        "config_version": 1,
        "framework": "nanogpt",
        "data": {
            "sources": [{"name": "a", "weight": 3.0}, {"name": "b", "weight": 1.0}],
            "tokenizer": "byte",
            "seq_len": BLOCK,
            "fingerprint": "0",
            "cache_dir": "cache",
        },
        "batch": {"tokens": 8 * BLOCK, "micro_batch": 8, "accumulation": 1},
        "optimizer": {"lr": 0.001},
        "schedule": {},
        "checkpoint": {"every": 10},
        "steps": 50,
        "attempt": {"number": 1, "resume": {"mode": "step", "candidates": [step]}},
        "adopt": {**adopted, "stamp": stamp_of(out / "ckpt.pt")},
    }
    path = folder / "attempts/1/config.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_taking_over_twice_leaves_one_checkpoint_and_one_history(out: Path, run: Path) -> None:
    config = config_of(run, out)
    assert take_over.main(str(config)) == 0
    place = run / f"checkpoints/step-{STEPS:08d}"
    before = [path.stat().st_mtime_ns for path in files_of(place)]
    assert take_over.main(str(config)) == 0
    assert [path.stat().st_mtime_ns for path in files_of(place)] == before
    assert verify(place) == []
    assert read(place).tags == ("adopted",)
    restored = read_checkpoint(place, STEPS)
    assert isinstance(restored, Restored)
    assert restored.state["data_position"] == [180, 60]
    lines, _ = complete_lines(config.with_name("events.jsonl").read_bytes())
    events = [decode(line).document for line in lines]
    actions = [(e["action"], e["step"]) for e in events if e["kind"] == "checkpoint"]
    assert actions == [("saved", STEPS), ("verified", STEPS)]
    assert not list(run.glob("checkpoints/.*"))


def test_a_damaged_copy_is_replaced(out: Path, run: Path) -> None:
    config = config_of(run, out)
    assert take_over.main(str(config)) == 0
    place = run / f"checkpoints/step-{STEPS:08d}"
    os.truncate(place / "model.safetensors", 100)
    assert take_over.main(str(config)) == 0
    assert verify(place) == []


def test_a_checkpoint_that_was_written_over_meanwhile_is_not_taken(
    out: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(run, out)
    changed(out / "ckpt.pt", lambda document: document.update(iter_num=STEPS + 5))
    assert take_over.main(str(config)) == 77
    assert f"of step {STEPS + 5} now" in capsys.readouterr().err
    assert not list(run.glob("checkpoints/step-*"))


def test_an_unknown_folder_is_refused_with_the_known_formats(out: Path, tmp_path: Path) -> None:
    refused = inspect_output(str(tmp_path))["refused"]
    assert refused["code"] == "OUTPUT_UNKNOWN"
    assert all(word in refused["message"] for word in ("ckpt.pt", "lit_model.pth", "checkpoint-"))
    assert inspect_output(str(out / "ckpt.pt"))["refused"]["code"] == "OUTPUT_UNKNOWN"
    assert inspect_output(str(out / "none"))["refused"]["code"] == "OUTPUT_UNKNOWN"
    (out / "step-00000001").mkdir()
    (out / "step-00000001" / "lit_model.pth").write_bytes(b"")
    assert "several" in inspect_output(str(out))["refused"]["message"]


def test_a_folder_of_a_run_of_ours_is_refused(out: Path) -> None:
    for name in ("supervisor.jsonl", "desired.json"):
        (out.parent / name).write_text("{}")
    refused = inspect_output(str(out))["refused"]
    assert refused["code"] == "OUTPUT_IS_OURS"
    assert f"trainmaster resume {out.parent.name}" in refused["fix"]
