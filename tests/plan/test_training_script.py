"""train.py of every kind: what it holds, and that it is Python as we write it."""

from __future__ import annotations

import ast
import os
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from support.plan.rendered import script_text

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import FRAMEWORKS, choices_of
from trainer_runtime.core.frameworks.framework import UnknownChoiceError
from trainmaster.home.assets import find_assets
from trainmaster.plan import frameworks as planned
from trainmaster.plan.script import training_script
from trainmaster.plan.spec import AdapterSpec, ModelSpec, TrainingSpec, all_fields, changes_of

_GOLDEN = Path(__file__).resolve().parents[1] / "golden/scripts"
_UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"
_KINDS = {
    "_".join((framework, *values)): (
        framework,
        {choice.name: value for choice, value in zip(record.choices, values, strict=True)},
    )
    for framework, record in FRAMEWORKS.items()
    for values in product(*(choice.values for choice in record.choices))
}
# Words of each choice's value that stand in no script of another value.
_ONLY = {
    "gpt2": ("LayerNorm", "position_embedding", "GPT-2 (Radford"),
    "llama": ("SwiGLU", "Llama"),
    "modern": ("rms_norm", "LOGIT_CAP", "value_embeddings", "zeros_", "nanochat"),
    "new": ("from_config", "new_model_config"),
    "existing": ("load_existing",),
    "pretrain": ("litgpt pretrain",),
    "finetune_full": ("finetune_full",),
    "finetune_lora": ("finetune_lora",),
    "sft": ("SFT",),
    "dpo": ("DPO",),
    "kto": ("KTO", "ConfigError", "block="),
    "reward": ("RewardTrainer",),
    "grpo": ("GRPO", "reward_funcs", "repeats=", "prompt_length"),
    "full": (),
    "lora": ("peft_config", "quantization", "adapter"),
}


@pytest.mark.parametrize("kind", _KINDS)
def test_every_kind_is_the_golden_one(kind: str) -> None:
    framework, choices = _KINDS[kind]
    script = script_text(framework, **choices)
    golden = _GOLDEN / f"{kind}.py"
    if _UPDATE:
        golden.write_text(script)
    assert script == golden.read_text()


def test_there_is_a_golden_for_no_other_kind() -> None:
    assert {path.stem for path in _GOLDEN.iterdir() if path.name != "__pycache__"} == {
        *_KINDS,
        "kaggle_session",
    }


@pytest.mark.parametrize("kind", _KINDS)
def test_a_script_holds_nothing_of_another_kind(kind: str) -> None:
    framework, choices = _KINDS[kind]
    script = script_text(framework, **choices)
    ast.parse(script)
    assert not [mark for mark in ("{{", "{%", "{#") if mark in script]
    for choice in FRAMEWORKS[framework].choices:
        for value in choice.values:
            found = [words in script for words in _ONLY[value]]
            own = choices[choice.name] == value
            assert found == [own] * len(found), (value, _ONLY[value])


def test_nothing_that_decides_a_script_changes_after_the_launch() -> None:
    choices = [choice for record in FRAMEWORKS.values() for choice in record.choices]
    fields = {field for choice in choices for field in choice.fields}
    assert {field: changes_of(field) for field in ("framework", *fields)} == dict.fromkeys(
        ("framework", *fields), "never"
    )


def test_the_choices_are_all_that_a_spec_may_say() -> None:
    choices = [choice for record in FRAMEWORKS.values() for choice in record.choices]
    values = {choice.name: choice.values for choice in choices}
    assert set(values["style"]) == _literal(ModelSpec, "style") - {"auto"}
    of_trl = planned.FRAMEWORKS["trl"].place_of(
        next(field for field in all_fields() if field.path == "method")
    )
    assert {"auto", *values["method"]} == set(of_trl.takes)  # type: ignore[arg-type]
    assert set(values["tuning"]) == {"full", *_literal(AdapterSpec, "kind")}


ADAPTER = {"kind": "lora", "r": 8, "alpha": 16}


def _literal(section: type[Any], name: str) -> set[str]:
    annotation = section.model_fields[name].annotation
    parts = get_args(annotation)
    return {value for part in parts for value in (get_args(part) or (part,))}


def test_a_method_that_trl_lacks_is_not_among_the_choices() -> None:
    assert "pretrain" in get_args(TrainingSpec.model_fields["method"].annotation)
    with pytest.raises(UnknownChoiceError, match="pretrain"):
        choices_of(RunConfig.parse({"framework": "trl", "method": "pretrain"}))


@pytest.mark.parametrize(
    "config",
    [
        {"framework": "../nanogpt", "model": {"style": "gpt2"}},
        {"framework": "nanogpt", "model": {"style": '"; import os'}},
        {"framework": "nanogpt", "model": {"style": ["gpt2"]}},
        {"framework": "nanogpt", "model": {"style": None}},
        {"framework": "trl", "method": "{{ 7 * 7 }}"},
        {"framework": "trl", "method": "sft", "adapter": {"kind": "other", "r": 8, "alpha": 16}},
        {"model": {"style": "gpt2"}},
    ],
)
def test_a_choice_outside_its_list_renders_nothing(config: dict[str, Any]) -> None:
    with pytest.raises(UnknownChoiceError):
        training_script(config, find_assets())


def test_values_do_not_get_into_a_script() -> None:
    odd = '"""\n{{ 7 * 7 }} {% raw %} import os'
    configs: list[dict[str, Any]] = [
        {"framework": "nanogpt", "model": {"style": "gpt2"}},
        {"framework": "hf", "model": {"path": odd}},
        {
            "framework": "litgpt",
            "method": "sft",
            "model": {"hub": odd},
            "adapter": {"r": 8, "alpha": 16},
        },
        {
            "framework": "trl",
            "method": "dpo",
            "adapter": {"kind": "lora", "r": 8, "alpha": 16, "targets": [odd]},
        },
    ]
    for config in configs:
        given = {**config, "name": odd, "run_id": odd, "env": {odd: odd}, "method_args": {odd: 1}}
        assert training_script(given, find_assets()) == script_text(
            config["framework"], **choices_of(RunConfig.parse(config))
        )
        assert odd not in training_script(given, find_assets())
