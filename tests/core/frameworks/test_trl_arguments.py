"""A configuration in TRL's words."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from support.train.trl_config import trl_config as config

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import launching
from trainer_runtime.core.frameworks.trl import training_arguments


def test_the_arguments_stand_in_yaml_beside_the_configuration() -> None:
    files = launching.files(RunConfig.parse(config("dpo")))
    assert files.keys() == {"training_args.yaml"}
    written = yaml.safe_load(files["training_args.yaml"])
    assert written == training_arguments(RunConfig.parse(config("dpo")))
    assert (written["beta"], written["loss_type"], written["max_length"]) == (0.1, ["sigmoid"], 512)
    assert written["learning_rate"] == 1e-5
    bytewise = config("dpo")
    bytewise["data"]["tokenizer"] = "byte"
    assert "tokenizer/tokenizer.json" in launching.files(RunConfig.parse(bytewise))


@pytest.mark.parametrize(
    ("given", "loss_type"),
    [
        ({"loss": "ipo"}, "ipo"),
        ({"loss": "sigmoid", "label_smoothing": 0.0}, "sigmoid"),
        ({"label_smoothing": 0.1}, "robust"),  # TRL's sigmoid takes no notice of the smoothing
    ],
)
def test_the_loss_of_dpo_is_the_one_that_does_what_is_asked(
    given: dict[str, Any], loss_type: str
) -> None:
    assert training_arguments(RunConfig.parse(config("dpo", method_args=given)))["loss_type"] == [
        loss_type
    ]


def test_plain_texts_are_packed_and_examples_are_not() -> None:
    texts = config("sft")
    texts["data"]["sources"][0]["format"] = "text"
    packed = training_arguments(RunConfig.parse(texts))
    assert (packed["packing"], packed["packing_strategy"]) == (True, "wrapped")
    assert training_arguments(RunConfig.parse(config("sft")))["packing"] is False


def test_packed_rows_stay_whole_and_are_evaluated_one_by_one() -> None:
    packed = training_arguments(RunConfig.parse(config("sft", method_args={"packing": True})))
    assert (packed["packing"], packed["packing_strategy"]) == (True, "bfd")
    assert packed["eval_packing"] is False


def test_weights_beneath_an_adapter_are_kept_in_the_precision_of_the_training() -> None:
    adapter = {"kind": "lora", "r": 8, "alpha": 16.0, "targets": "auto", "quantize": None}
    arguments = training_arguments(RunConfig.parse(config("kto", adapter=adapter)))
    assert arguments["model_init_kwargs"] == {"dtype": "bfloat16"}
    assert "model_init_kwargs" not in training_arguments(RunConfig.parse(config("kto")))


@pytest.mark.parametrize(
    ("quantize", "given"), [("nf4", {"model_init_kwargs": {"dtype": "float16"}}), (None, {})]
)
def test_in_fp16_what_stays_beside_four_bits_is_halved(
    quantize: str | None, given: dict[str, Any]
) -> None:
    adapter = {"kind": "lora", "r": 8, "alpha": 16.0, "targets": "auto", "quantize": quantize}
    parsed = RunConfig.parse(config("sft", adapter=adapter, precision="fp16"))
    written = training_arguments(parsed)
    assert {name: written[name] for name in written if name == "model_init_kwargs"} == given


@pytest.mark.parametrize(("processes", "batch"), [(1, 8), (2, 4), (3, 8), (16, 4)])
def test_evaluations_of_grpo_hold_whole_groups_over_all_ranks(processes: int, batch: int) -> None:
    compute = {"device": "cpu", "processes": processes}
    arguments = training_arguments(RunConfig.parse(config("grpo", compute=compute)))
    assert arguments["per_device_eval_batch_size"] == batch
    assert arguments["per_device_eval_batch_size"] * processes % arguments["num_generations"] == 0
    assert arguments["max_completion_length"] == 256
