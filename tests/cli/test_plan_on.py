"""`plan SPEC --on`: machines that are not there, one or several, and what would fit where."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import CommandLine

from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.fit import LITTLE_ROOM
from trainmaster.plan.decisions.target import GPU_SHARE
from trainmaster.plan.imagined import destination_of
from trainmaster.runs.planning.plan_on import destinations_of
from trainmaster.settings.clouds import KEY_NAMES

_PRETRAIN = """\
name: seven
framework: hf
model: {preset: llama-7b}
data: {sources: [{path: ./corpus}], tokenizer: huggyllama/llama-7b}
tokens: 100B
"""
_ADAPTER = """\
name: adapter
framework: trl
method: sft
model: {hub: meta-llama/Llama-3.1-8B}
adapter: {r: 16}
data: {sources: [{path: ./rows, format: jsonl}], seq_len: 2048}
batch: {tokens: 32768}
method_args: {epochs: 1}
"""
_NANOGPT = """\
name: small
framework: nanogpt
model: {preset: gpt2-124m}
data: {sources: [{path: ./corpus}]}
tokens: 1B
"""


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The answer of `plan SPEC --on MACHINES`, in a home where nothing else was ever done."""

    def answer(spec: str, on: str, *options: str, code: int = 0) -> dict[str, Any]:
        (tmp_path / "spec.yaml").write_text(spec)
        command = CommandLine(tmp_path / "home")
        return command("plan", str(tmp_path / "spec.yaml"), "--on", on, *options, code=code)

    return answer


def decided(answer: dict[str, Any], field: str) -> Any:
    return next(item["value"] for item in answer["decisions"] if item["field"] == field)


def test_a_pretraining_is_planned_for_a_machine_that_is_not_there(
    planned: Callable[..., dict[str, Any]],
) -> None:
    answer = planned(_PRETRAIN, "8xA100 80GB")
    assert answer["host"] == "a100:8"
    assert answer["estimates"]["parameters"] == 6_738_415_616
    assert (decided(answer, "data.seq_len"), decided(answer, "batch.tokens")) == (2048, 1 << 22)
    assert answer["gpu"]["recommended"] == answer["gpu"]["planned"] == "8x NVIDIA A100"
    assert answer["estimates"]["usd"] > 0
    assert "finish_at" not in answer["estimates"]
    assert any("Assumed" in warning for warning in answer["warnings"])
    assert any("list price of" in warning for warning in answer["warnings"])
    assert "launch" not in answer["next_step"].partition("then launch there")[0]
    assert "offers --gpu a100 --count 8" in answer["next_step"]


def test_several_machines_are_compared(planned: Callable[..., dict[str, Any]]) -> None:
    rows = planned(_ADAPTER, "t4,a100-80gb:1,h100:8")["targets"]
    small, one, eight = rows
    assert [row["on"] for row in rows] == ["t4:1", "a100:1", "h100:8"]
    assert (one["fits"], eight["strategy"]) == (True, "ddp")
    assert eight["hours"] < one["hours"]
    marks = [row.get("best") or "" for row in rows]
    assert "quickest" in marks[2]
    assert sum("cheapest" in mark for mark in marks) == 1
    assert small["fits"] is False
    assert small["problem"].startswith("Training ")
    assert any("adapter.quantize=nf4" in change for change in small["would_fit"])


def test_what_would_fit_was_planned_and_does(planned: Callable[..., dict[str, Any]]) -> None:
    refused = planned(_ADAPTER, "t4", code=1)["error"]
    assert refused["code"] == "DOES_NOT_FIT"
    assert "adapter.quantize=nf4" in refused["fix"]
    answer = planned(_ADAPTER, "t4", "--set", "adapter.quantize=nf4")
    assert answer["gpu"]["planned"] == "NVIDIA T4"


@pytest.mark.parametrize("on", ["t4", "3090"])
def test_only_what_fits_with_room_is_named_as_fitting(
    planned: Callable[..., dict[str, Any]], on: str
) -> None:
    spec = _PRETRAIN.replace("llama-7b", "llama-3.2-1b")
    ways = planned(spec, f"{on},h100")["targets"][0]["would_fit"]
    assert ways
    usable_gib = destination_of(on).facts.gpus[0].memory_gib * GPU_SHARE
    for way in ways:
        change, gib = re.fullmatch(r"(.+) \(([\d.]+) GiB a GPU\)", way).groups()
        assert float(gib) <= usable_gib
        machine = change.removeprefix("on ") if change.startswith("on ") else on
        sets = [] if machine != on else [f"--set={one}" for one in change.split(" and ")]
        warnings = planned(spec, machine, *sets)["warnings"]
        assert not any(warning.startswith(LITTLE_ROOM) for warning in warnings)


def test_a_step_for_which_memory_is_short_is_not_said_to_fit(
    planned: Callable[..., dict[str, Any]],
) -> None:
    answer = planned(_PRETRAIN.replace("llama-7b", "llama-3.2-1b"), "3090:2")
    assert any(warning.startswith(LITTLE_ROOM) for warning in answer["warnings"])
    reason = next(
        item["reason"] for item in answer["decisions"] if item["field"] == "batch.micro_batch"
    )
    assert reason == "The least, for which memory is short."


def test_several_gpus_of_one_process_are_refused_with_who_could(
    planned: Callable[..., dict[str, Any]],
) -> None:
    one, eight = planned(_NANOGPT, "h100,h100:8")["targets"]
    assert one["fits"] is True
    assert "single process" in eight["problem"]
    assert any(change.startswith("framework=hf") for change in eight["would_fit"])


def test_a_session_of_kaggle_is_planned_for_without_its_key(
    planned: Callable[..., dict[str, Any]],
) -> None:
    answer = planned(_NANOGPT.replace("nanogpt", "hf").replace("1B", "100M"), "kaggle")
    assert answer["gpu"]["planned"] == "2x NVIDIA T4"
    assert "usd" not in answer["estimates"]
    assert answer["estimates"]["sessions"] >= 1


def test_offers_without_a_key_are_those_of_the_list_prices(
    planned: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KEY_NAMES.values():
        monkeypatch.delenv(name, raising=False)
    rows = planned(_NANOGPT, "offers")["targets"]
    assert {"h100:1", "4090:1"} <= {row["on"] for row in rows if row["fits"]}


def test_the_plan_is_the_same_on_every_machine(
    planned: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = planned(_PRETRAIN, "h100:32,kaggle")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert planned(_PRETRAIN, "h100:32,kaggle") == here


@pytest.mark.parametrize(
    ("on", "code", "said"),
    [
        ("h1000", "GPU_NOT_FOUND", "Did you mean h100"),
        ("MI300X:8", "GPU_NOT_FOUND", "other makers"),
        ("h100:12", "INVALID_VALUE", "not whole machines"),
        ("kaggle:4", "INVALID_VALUE", "takes no number: it has 2 NVIDIA T4"),
        ("4x kaggle", "INVALID_VALUE", "takes no number"),
        ("rtx", "GPU_NOT_FOUND", "Did you mean 5090, 4090, 3090"),
        ("RTX 4080:2", "GPU_NOT_FOUND", "4090"),
        ("", "INVALID_VALUE", "names no machine"),
    ],
)
def test_machines_that_nobody_makes_are_refused(
    planned: Callable[..., dict[str, Any]], on: str, code: str, said: str
) -> None:
    error = planned(_PRETRAIN, on, code=1)["error"]
    assert error["code"] == code
    assert said in error["message"]


def test_weights_of_the_hub_that_are_not_known_are_not_fetched(
    planned: Callable[..., dict[str, Any]],
) -> None:
    spec = _ADAPTER.replace("meta-llama/Llama-3.1-8B", "somebody/lama-31-8b")
    error = planned(spec, "h100", code=1)["error"]
    assert (error["code"], error["field"]) == ("MODEL_NOT_FOUND", "model.hub")
    assert "Did you mean llama-3.1-8b" in error["message"]


@pytest.mark.parametrize(
    ("written", "gpu", "gpus", "nodes"),
    [
        ("A100 80GB", "a100", 1, 1),
        ("8xH100", "h100", 8, 1),
        ("h100-sxm:2", "h100", 2, 1),
        ("RTX 4090", "4090", 1, 1),
        ("L40S", "l40s", 1, 1),
        ("A6000:2", "a6000", 2, 1),
        ("V100-32GB", "v100", 1, 1),
        ("V100-16GB", "v100-16", 1, 1),
        ("a100-40gb:8", "a100-40", 8, 1),
        ("2 x RTX 6000 Ada", "6000ada", 2, 1),
        ("h100:32", "h100", 8, 4),
        ("h100x8", "h100", 8, 1),
        ("L40S x2", "l40s", 2, 1),
        ("A10G:4", "a10g", 4, 1),
        ("A100 80GB x8", "a100", 8, 1),
        ("h100 x 8", "h100", 8, 1),
        ("8 H100", "h100", 8, 1),
        ("4×A100", "a100", 4, 1),
        ("4090x2", "4090", 2, 1),
        ("A100 SXM4 40GB 8x", "a100-40", 8, 1),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "pro6000", 1, 1),
    ],
)
def test_gpus_are_named_as_people_write_them(written: str, gpu: str, gpus: int, nodes: int) -> None:
    destination = destination_of(written)
    assert (destination.gpu, destination.gpus, destination.nodes) == (gpu, gpus, nodes)


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("a100:-1", "INVALID_VALUE"),
        ("h100:1e3", "INVALID_VALUE"),
        ("a100:8:8", "INVALID_VALUE"),
        ("a100:1000000", "INVALID_VALUE"),
        ("a100:12", "INVALID_VALUE"),
        ("a100:0", "INVALID_VALUE"),
        ("a100 20GB:8", "GPU_NOT_FOUND"),
        ("a100,h100", "GPU_NOT_FOUND"),
        ("h100 8", "GPU_NOT_FOUND"),
        ("H100 MIG 1g.10gb", "GPU_NOT_FOUND"),
        ("RTX 4090 Laptop", "GPU_NOT_FOUND"),
    ],
)
def test_what_is_no_number_of_known_gpus_is_refused(written: str, code: str) -> None:
    with pytest.raises(PlanError) as refused:
        destination_of(written)
    assert refused.value.code == code


def test_machines_are_planned_for_once_each_and_none_is_refused() -> None:
    assert [one.on for one in destinations_of("a100-80gb:1, a100:1,t4")] == ["a100:1", "t4:1"]
    with pytest.raises(PlanError, match="names no machine"):
        destinations_of(" , ")


_OFFLOADED = """\
name: offloaded
framework: trl
method: sft
model: {hub: meta-llama/Llama-3.1-70B}
data: {sources: [{path: ./rows, format: jsonl}]}
steps: 100
compute: {strategy: zero3_offload, activation_checkpointing: true}
"""


def test_state_beyond_the_hosts_memory_is_not_offloaded(
    planned: Callable[..., dict[str, Any]],
) -> None:
    error = planned(_OFFLOADED, "a100:4", code=1)["error"]
    assert (error["code"], error["field"]) == ("DOES_NOT_FIT", "compute.strategy")
    assert "of state in host memory" in error["message"]
    assert "on a100:8" in error["fix"]
    assert planned(_OFFLOADED, "a100:8")["estimates"]["memory_gib"] < 79


def test_memory_that_is_short_is_not_said_to_fit(
    planned: Callable[..., dict[str, Any]],
) -> None:
    spec = _ADAPTER.replace("Llama-3.1-8B", "Llama-2-7b-hf") + "compute: {strategy: single}\n"
    short = ("--set", "adapter={r: 16, quantize: nf4}", "--set", "batch.micro_batch=10")
    answer = planned(spec, "t4", *short)
    assert any(text.startswith("Memory is short") for text in answer["warnings"])
    assert answer["gpu"]["reason"].startswith("Memory is short: ")
    row = planned(spec, "t4,a100", *short)["targets"][0]
    assert row["problem"].startswith("Memory is short: ")


@pytest.mark.long
def test_a_traced_step_takes_the_place_of_the_formulas(
    planned: Callable[..., dict[str, Any]],
) -> None:
    sizes = ("--set", "model={style: gpt2, n_layer: 2, n_head: 2, d_model: 64}")
    usual = planned(_NANOGPT, "a100", *sizes)
    traced = planned(_NANOGPT, "a100", *sizes, "--trace")
    assert "memory_source" not in usual["estimates"]
    assert traced["estimates"]["memory_source"] == "trace"
    low, high = usual["estimates"]["ranges"]["memory_gib"]
    assert low <= traced["estimates"]["memory_gib"] <= high
    [decision] = [item for item in traced["decisions"] if item["field"] == "memory_gib"]
    assert decision["source"] == "trace" and "was traced" in decision["reason"]


@pytest.mark.parametrize(
    ("spec", "on", "exit_code", "code", "reason"),
    [
        (_ADAPTER, "a100", 1, "NOT_TRACED", "existing weights"),
        (_NANOGPT, "a100,h100", 2, "BAD_ARGUMENT", "`--on` names 2 machines"),
    ],
)
def test_what_cannot_be_traced_is_refused_with_the_way_without(
    planned: Callable[..., dict[str, Any]],
    spec: str,
    on: str,
    exit_code: int,
    code: str,
    reason: str,
) -> None:
    error = planned(spec, on, "--trace", code=exit_code)["error"]
    assert error["code"] == code and reason in error["message"]
    assert error["field"] == "--trace" and error["fix"]


def test_several_runs_are_not_traced_at_once(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(_NANOGPT)
    command = CommandLine(tmp_path / "home")
    words = ("--trace", "--vary", "seed=1,2")
    error = command("launch", str(tmp_path / "spec.yaml"), *words, code=2)["error"]
    assert (error["code"], error["field"]) == ("BAD_ARGUMENT", "--trace")
