"""Weights that are tuned but not at hand: planned by their shape, and refused by a launch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.runs.running_run import run_async

from trainmaster.errors.errors import PlanError
from trainmaster.plan.planned import Planned, refuse_unlaunchable
from trainmaster.runs.planning.plan_run import plan_spec
from trainmaster.sync.workspace import Workspace

_ROWS = '{"prompt": "What is two and two?", "completion": "Four."}\n'


def planned(
    workspace: Workspace, tmp_path: Path, model: str, framework: str = "trl", gpu: str = "h100"
) -> Planned:
    (tmp_path / "rows.jsonl").write_text(_ROWS * 200)
    spec = (
        f"name: a\nframework: {framework}\nmethod: sft\nmodel: {model}\nadapter: {{r: 8}}\n"
        f"data: {{sources: [{{path: {tmp_path}/rows.jsonl, format: jsonl}}]}}\nsteps: 20\n"
        f"compute: {{gpu: {gpu}}}\n"
    )
    return run_async(lambda: plan_spec(workspace, spec, None, []))


@pytest.mark.parametrize(
    ("framework", "model", "parameters"),
    [
        ("trl", "{preset: llama-3-8b}", 8_030_261_248),
        ("litgpt", "{preset: llama-3-8b}", 8_030_261_248),
        ("trl", "{n_layer: 2, n_head: 2, d_model: 64, vocab_size: 512}", None),
    ],
)
def test_weights_of_a_shape_are_planned_and_not_launched(
    workspace: Workspace, tmp_path: Path, framework: str, model: str, parameters: int | None
) -> None:
    made = planned(workspace, tmp_path, model, framework)
    if parameters is not None:
        assert made.plan.estimates.parameters == parameters
    assert any("The launch needs them" in warning for warning in made.plan.warnings)
    with pytest.raises(PlanError) as caught:
        refuse_unlaunchable(made)
    assert caught.value.code == "MODEL_UNUSABLE"


def test_a_folder_with_nothing_but_its_config_is_planned_and_not_launched(
    workspace: Workspace, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 2048,
        "num_hidden_layers": 22,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "intermediate_size": 5632,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    made = planned(workspace, tmp_path, f"{{path: {folder}}}")
    assert made.plan.estimates.parameters == 1_100_048_384
    with pytest.raises(PlanError) as caught:
        refuse_unlaunchable(made)
    assert "holds no weights" in caught.value.message
    assert caught.value.field == "model.path"


_MIXTRAL = {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}


def test_experts_of_a_folder_are_planned_as_those_of_the_models_name(
    workspace: Workspace, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(_MIXTRAL))
    by_path = planned(workspace, tmp_path, f"{{path: {folder}}}", gpu="h200").plan
    by_name = planned(workspace, tmp_path, "{preset: mixtral-8x7b}", gpu="h200").plan
    assert by_path.config["derived"] == by_name.config["derived"]
    assert by_path.config["model"]["d_ff"] == by_name.config["model"]["d_ff"] == 2 * 14336
    ours, theirs = by_path.estimates, by_name.estimates
    assert (ours.memory_gib, ours.tokens_per_s) == (theirs.memory_gib, theirs.tokens_per_s)


def test_experts_that_are_not_counted_leave_the_sizes_open(
    workspace: Workspace, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    unknown = {**_MIXTRAL, "model_type": "phimoe", "architectures": ["PhimoeForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(unknown))
    made = planned(workspace, tmp_path, f"{{path: {folder}}}").plan
    assert made.estimates.memory_gib is None
    assert made.config["derived"]["flops_per_token"] is None
