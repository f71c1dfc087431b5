"""What starts several ranks: the launchers' files, and their command lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import launching

CONFIG: dict[str, Any] = {
    "run_id": "small-abc234",
    "framework": "hf",
    "model": {"d_model": 64, "path": None, "hub": None},
    "data": {"tokenizer": "byte"},
    "batch": {"micro_batch": 4, "accumulation": 2},
    "optimizer": {"name": "adamw", "lr": 0.001, "weight_decay": 0.1, "grad_clip": 0.5},
    "schedule": {"kind": "cosine", "warmup_steps": 0},
    "steps": 100,
    "seed": 1,
    "precision": "bf16",
    "compute": {"device": "cuda", "processes": 2, "strategy": "ddp", "threads": 3},
}


def config(framework: str = "hf", *, model: dict[str, Any] | None = None, **compute: Any) -> Any:
    changed = {"framework": framework, "compute": {**CONFIG["compute"], **compute}}
    return {**CONFIG, **changed, "model": model or CONFIG["model"]}


def accelerate_of(given: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(
        launching.files(RunConfig.parse(given))["accelerate_config.yaml"]
    )
    return document


def test_a_single_process_has_no_launcher() -> None:
    single = config(processes=1, strategy="single")
    assert "accelerate_config.yaml" not in launching.files(RunConfig.parse(single))
    assert launching.command(RunConfig.parse(single), "py", "a/config.json") == [
        "py",
        "train.py",
        "a/config.json",
    ]


def test_ranks_of_trainer_are_accelerates() -> None:
    given = config()
    document = accelerate_of(given)
    assert document["distributed_type"] == "MULTI_GPU"
    assert (document["num_processes"], document["main_process_port"]) == (2, 0)
    assert (document["mixed_precision"], document["use_cpu"]) == ("bf16", False)
    assert launching.command(RunConfig.parse(given), "py", "attempts/1/config.json") == [
        *("py", "-m", "trainer_runtime", "ranks", "attempts/1/config.json")
    ]
    assert launching.launch_command(RunConfig.parse(given), "py", "attempts/1/config.json") == [
        *("py", "-m", "accelerate.commands.launch"),
        *("--config_file", "attempts/1/accelerate_config.yaml"),
        *("train.py", "attempts/1/config.json"),
    ]


def test_ranks_of_litgpt_are_torchruns() -> None:
    given = config("litgpt")
    assert "accelerate_config.yaml" not in launching.files(RunConfig.parse(given))
    command = launching.launch_command(RunConfig.parse(given), "py", "config.json")
    assert command[:4] == ["py", "-m", "torch.distributed.run", "--standalone"]
    assert command[-4:] == ["--nproc-per-node", "2", "train.py", "config.json"]


def test_fsdp_is_the_second_and_shares_out_by_layers() -> None:
    given = config(strategy="fsdp", activation_checkpointing=True)
    document = accelerate_of(given)
    assert document["distributed_type"] == "FSDP"
    assert document["fsdp_config"] == {
        "fsdp_activation_checkpointing": True,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_cpu_ram_efficient_loading": False,
        "fsdp_offload_params": False,
        "fsdp_reshard_after_forward": True,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_version": 2,
    }
    # Trainer refuses to do it as well.
    arguments = yaml.safe_load(launching.files(RunConfig.parse(given))["training_args.yaml"])
    assert arguments["gradient_checkpointing"] is False


@pytest.mark.parametrize(
    ("method", "by_rank_0"), [("pretrain", True), ("sft", True), ("dpo", False)]
)
def test_every_rank_reads_the_weights_of_a_reference_itself(method: str, by_rank_0: bool) -> None:
    """TRL shares out what each of them has read."""
    given = {**config(strategy="fsdp"), "method": method}
    given["model"] = {**given["model"], "path": "/models/small"}
    assert accelerate_of(given)["fsdp_config"]["fsdp_cpu_ram_efficient_loading"] is by_rank_0


@pytest.mark.parametrize(("strategy", "stage"), [("zero1", 1), ("zero2", 2), ("zero3", 3)])
def test_deepspeed_is_given_every_value(strategy: str, stage: int) -> None:
    given = config(strategy=strategy)
    written = json.loads(launching.files(RunConfig.parse(given))["ds_config.json"])
    assert written["zero_optimization"]["stage"] == stage
    assert (written["train_micro_batch_size_per_gpu"], written["gradient_accumulation_steps"]) == (
        4,
        2,
    )
    assert (written["train_batch_size"], written["gradient_clipping"]) == (16, 0.5)
    assert (written["bf16"]["enabled"], written["fp16"]["enabled"]) == (True, False)
    assert "auto" not in str(written)
    document = accelerate_of(given)
    assert document["distributed_type"] == "DEEPSPEED"
    assert document["deepspeed_config"]["deepspeed_config_file"] == "ds_config.json"
    assert "mixed_precision" not in document  # accelerate refuses it beside DeepSpeed's own
    command = launching.launch_command(RunConfig.parse(given), "py", "attempts/2/config.json")
    assert "attempts/2/ds_config.json" in command


def test_a_single_gpu_that_offloads_has_a_launcher_too() -> None:
    given = config(strategy="zero3_offload", processes=1)
    written = json.loads(launching.files(RunConfig.parse(given))["ds_config.json"])
    assert written["zero_optimization"]["offload_param"]["device"] == "cpu"
    assert written["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert written["train_batch_size"] == 8
    assert launching.launcher(RunConfig.parse(given)) == "accelerate"


def test_how_wide_given_weights_are_is_left_to_trainer() -> None:
    model = {"d_model": None, "path": "/models/a", "hub": None}
    written = json.loads(
        launching.files(RunConfig.parse(config(model=model, strategy="zero3")))["ds_config.json"]
    )
    assert written["zero_optimization"]["reduce_bucket_size"] == "auto"
    assert accelerate_of(config(model=model, strategy="zero3"))["deepspeed_config"][
        "zero3_init_flag"
    ]


def test_on_a_cpu_ranks_meet_on_the_machine_itself() -> None:
    written = launching.variables(RunConfig.parse(config(device="cpu")))
    assert written == {"OMP_NUM_THREADS": "3", "GLOO_SOCKET_IFNAME": "lo", "DS_ACCELERATOR": "cpu"}
    assert launching.variables(RunConfig.parse(config())) == {"OMP_NUM_THREADS": "3"}
