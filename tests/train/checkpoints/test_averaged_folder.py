"""Averages of checkpoints: their values, and what is refused with which reason."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from support.host.run_configs import Config, bytes_of, changed, model_of, pretraining
from torch import Tensor

from trainer_runtime.core.answers.averaged import AverageAnswer, AverageRequest, RunSteps
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.manifest import Manifest, verify
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.checkpoints.averaged_folder import write_average
from trainer_runtime.train.checkpoints.folder import write_folder
from trainer_runtime.train.checkpoints.saved_tensors import AveragedTensors, SavedTensors
from trainer_runtime.train.checkpoints.tensors import read_tensors, write_tensors
from trainer_runtime.train.loop.sampling import trained_model

WIDTH = 6


def config_of(folder: Path, framework: str, **changes: Any) -> Config:
    folder.mkdir()
    (folder / "text").write_bytes(b"a text")
    size = {"n_layer": 1, "n_head": 2, "d_model": WIDTH}
    data = bytes_of({"main": folder}, 8, folder)
    model = model_of(size, vocab_size=257, style="llama")
    sizes = {"micro_batch": 1, "accumulation": 1}
    return changed(pretraining(framework, model, data, sizes), changes)


def weights(seed: int) -> dict[str, Tensor]:
    """Of a nanogpt model in the style of Llama."""
    numbers = torch.Generator().manual_seed(seed)
    shapes = {
        "token_embedding.weight": (257, WIDTH),
        "output.weight": (257, WIDTH),
        "final_norm.weight": (WIDTH,),
        "blocks.0.attention_norm.weight": (WIDTH,),
        "blocks.0.attention.to_heads.weight": (3 * WIDTH, WIDTH),
        "blocks.0.attention.to_residual.weight": (WIDTH, WIDTH),
        "blocks.0.feed_forward_norm.weight": (WIDTH,),
        "blocks.0.feed_forward.widen.weight": (8 * WIDTH, WIDTH),
        "blocks.0.feed_forward.to_residual.weight": (WIDTH, 4 * WIDTH),
    }
    return {name: torch.randn(shape, generator=numbers) for name, shape in shapes.items()}


def save(run: Path, step: int, tensors: Mapping[str, Tensor], **parts: Any) -> None:
    folder = run / f"checkpoints/step-{step:08d}"
    manifest = Manifest(step, 1, 0.0, {}, (), "", ())
    documents = {"config": {"model_type": "llama"}, "trainer_state": {}}
    write_folder(folder, {"model": tensors, **parts}, documents, manifest, lambda: None)


def average(
    run: Path, config: Config, steps: Mapping[str, tuple[int, ...]], *, ema: bool = False
) -> AverageAnswer:
    runs = tuple(RunSteps(name, str(run.parent / name), of) for name, of in steps.items())
    with contextlib.chdir(run):
        return write_average(RunConfig.parse(config), AverageRequest(runs, ema))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def test_the_mean_of_a_run_s_checkpoints_is_a_model_as_final_is(run: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path / "data", "nanogpt")
    for step in (10, 20, 30):
        save(run, step, weights(step))
    answer = average(run, config, {"run": (20, 30)})
    assert (answer.checkpoints, answer.path) == (2, "averaged")
    assert verify(run / "averaged") == []
    described = json.loads((run / "averaged/config.json").read_text())
    assert described["architectures"] == ["LlamaForCausalLM"]
    averaged = trained_model(run, "averaged").weights
    for name, tensor in averaged.items():
        torch.testing.assert_close(tensor, (weights(20)[name] + weights(30)[name]) / 2)
    assert averaged.keys() == weights(20).keys()


def test_a_soup_of_runs_of_transformers_keeps_types_and_what_is_no_number(
    run: Path, tmp_path: Path
) -> None:
    config = config_of(tmp_path / "data", "hf")
    for name, value in (("run", 1.0), ("other", 2.0)):
        halves = torch.full((3, 5), value, dtype=torch.bfloat16)
        save(tmp_path / name, 10, {"half": halves, "count": torch.tensor([int(value)])})
    average(run, config, {"run": (10,), "other": (10,)})
    averaged = read_tensors(run / "averaged/model.safetensors")
    assert averaged["half"].equal(torch.full((3, 5), 1.5, dtype=torch.bfloat16))
    assert averaged["count"].item() == 2
    assert (run / "averaged/config.json").exists()
    assert not (run / "averaged/trainer_state.json").exists()


def test_the_averaged_weights_of_a_checkpoint_become_a_model(run: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path / "data", "hf")
    save(run, 10, {"a": torch.zeros(3), "fixed": torch.ones(2)}, ema={"a": torch.full((3,), 5.0)})
    average(run, config, {"run": (10,)}, ema=True)
    averaged = read_tensors(run / "averaged/model.safetensors")
    assert averaged["a"].tolist() == [5.0] * 3 and averaged["fixed"].tolist() == [1.0] * 2


def test_a_tensor_of_several_pieces_has_the_mean_of_each_element(tmp_path: Path) -> None:
    sources = []
    for seed in (1, 2, 3):
        with (tmp_path / str(seed)).open("wb") as file:
            write_tensors(file.write, weights(seed))
        sources.append(SavedTensors(str(seed), [tmp_path / str(seed)]))
    for name, tensor in AveragedTensors(sources, piece_elements=7).items():
        torch.testing.assert_close(tensor, sum(weights(seed)[name] for seed in (1, 2, 3)) / 3)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"a": torch.zeros(4)}, "a is F32 4 in other step 10, and F32 3 in run step 10"),
        ({"a": torch.zeros(3), "b": torch.zeros(1)}, "of other models: b"),
        ({"a": torch.zeros(3, dtype=torch.bfloat16)}, "a is BF16 3"),
    ],
)
def test_checkpoints_of_other_shapes_are_refused_and_nothing_is_left(
    run: Path, tmp_path: Path, tensors: dict[str, Tensor], reason: str
) -> None:
    config = config_of(tmp_path / "data", "hf")
    save(run, 10, {"a": torch.zeros(3)})
    save(tmp_path / "other", 10, tensors)
    with pytest.raises(ConfigError, match=reason):
        average(run, config, {"run": (10,), "other": (10,)})
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints"]


def test_a_damaged_checkpoint_is_refused(run: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path / "data", "nanogpt")
    save(run, 10, weights(1))
    path = run / "checkpoints/step-00000010/model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ConfigError, match="run step 10 does not verify"):
        average(run, config, {"run": (10,)})


@pytest.mark.parametrize(
    ("framework", "changes", "reason"),
    [
        ("litgpt", {}, "checkpoints of litgpt are not in safetensors"),
        ("hf", {"adapter": {"r": 4, "alpha": 8.0, "targets": []}}, "product of factors"),
    ],
)
def test_formats_that_have_no_mean_are_refused(
    run: Path, tmp_path: Path, framework: str, changes: dict[str, Any], reason: str
) -> None:
    config = config_of(tmp_path / "data", framework, **changes)
    with pytest.raises(ConfigError, match=reason):
        average(run, config, {"run": (10,)})
