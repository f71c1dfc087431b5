"""`plan SPEC --write DIR`: the plan as pages, with a picture and the framework's own files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import CommandLine

_MIXED = """\
name: mixed
framework: hf
model: {preset: llama-7b}
data:
  sources: [{name: web, path: ./web, weight: 0.75}, {name: code, path: ./code, weight: 0.25}]
  tokenizer: huggyllama/llama-7b
tokens: 100B
"""
_PAGES = ["compute.md", "data.md", "monitoring.md", "training.md"]
_NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?![\w-])")


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def answer(spec: str, *options: str, code: int = 0) -> dict[str, Any]:
        (tmp_path / "spec.yaml").write_text(spec)
        command = CommandLine(tmp_path / "home")
        return command("plan", str(tmp_path / "spec.yaml"), *options, code=code)

    return answer


def numbers(text: str) -> Iterator[float]:
    for number in _NUMBER.findall(text):
        yield float(number.replace(",", ""))


def test_a_plan_is_written_as_pages_of_its_own_figures(
    planned: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "plan"
    answer = planned(_MIXED, "--on", "a100:8", "--write", str(folder))
    assert sorted(path.name for path in folder.glob("*.md")) == _PAGES
    assert str(folder) in answer["next_step"]
    assert (folder / "schedule.png").read_bytes().startswith(b"\x89PNG")
    configs = {path.name for path in (folder / "configs").iterdir()}
    assert {"training_args.yaml", "ds_config.json", "accelerate_config.yaml"} <= configs
    record = (folder / "plan.json").read_text()
    of_plan = {float(f"{number:.4g}") for number in numbers(record)}
    for page in ("compute.md", "data.md", "training.md"):
        text = (folder / page).read_text()
        unknown = {number for number in numbers(text) if float(f"{number:.4g}") not in of_plan}
        assert not unknown, page
    compute = (folder / "compute.md").read_text()
    for target in ("tokens a second: the target", "MFU: the target", "dollars", "tokens in all"):
        assert f"| {target}" in compute
    training = (folder / "training.md").read_text()
    assert "Touvron et al. 2023 (LLaMA), table 2" in training
    assert all(f"- {warning.partition('`')[0]}" in training for warning in answer["warnings"])
    data = (folder / "data.md").read_text()
    assert "| web | " in data and "| tokenizer | huggyllama/llama-7b |" in data
    assert json.loads(record)["config"]["data"]["tokenizer"] == "huggyllama/llama-7b"
    monitoring = (folder / "monitoring.md").read_text()
    assert "`loss_spike`" in monitoring
    assert "rewards" not in monitoring.partition("## Findings")[0]


def test_the_page_of_an_adapter_shows_what_is_trained_beside_the_total(
    planned: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    spec = (
        "name: tuned\nframework: trl\nmethod: sft\nmodel: {hub: mistralai/Mixtral-8x7B-v0.1}\n"
        "adapter: {r: 16, quantize: nf4}\nsteps: 100\n"
        "data: {sources: [{path: ./rows, format: jsonl}]}\n"
    )
    answer = planned(spec, "--on", "h200", "--write", str(tmp_path / "plan"))
    assert answer["estimates"]["trained_parameters"] == 359_665_664
    page = (tmp_path / "plan/compute.md").read_text()
    assert "| parameters | 46,702,792,704 |" in page
    assert "| trained parameters: the adapter's | 359,665,664 |" in page
    refused = planned(spec, "--on", "a100", code=1)
    assert refused["error"]["code"] == "DOES_NOT_FIT"


def test_an_earlier_plan_is_replaced_and_anything_else_is_kept(
    planned: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "plan"
    written = ("--on", "a100:8", "--write", str(folder))
    planned(_MIXED, *written)
    (folder / "notes.txt").write_text("mine")
    planned(_MIXED.replace("hf", "litgpt"), *written)
    assert (folder / "notes.txt").read_text() == "mine"
    configs = {path.name for path in (folder / "configs").iterdir()}
    assert "litgpt.yaml" in configs
    assert "ds_config.json" not in configs
    record = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text("{}")
    assert planned(_MIXED, *written, code=2)["error"]["field"] == "--write"
    assert record["config"]["framework"] == "litgpt"


def test_a_folder_with_other_things_and_several_machines_are_refused(
    planned: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "full"
    folder.mkdir()
    (folder / "thesis.md").write_text("years of work")
    error = planned(_MIXED, "--on", "a100:8", "--write", str(folder), code=2)["error"]
    assert (error["code"], error["field"]) == ("BAD_ARGUMENT", "--write")
    assert "new or empty folder" in error["fix"]
    assert [path.name for path in folder.iterdir()] == ["thesis.md"]
    several = planned(_MIXED, "--on", "a100:8,h100:8", "--write", str(tmp_path / "new"), code=2)
    assert "2 machines" in several["error"]["message"]
    assert not (tmp_path / "new").exists()


def test_a_plan_for_a_host_is_written_too(
    planned: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("to be or not to be " * 2000)
    spec = (
        "name: small\nframework: nanogpt\nmodel: {n_layer: 2, n_head: 2, d_model: 32}\n"
        f"data: {{sources: [{{path: {tmp_path / 'corpus'}}}]}}\nsteps: 20\n"
    )
    planned(spec, "--write", str(tmp_path / "plan"))
    assert sorted(path.name for path in (tmp_path / "plan").glob("*.md")) == _PAGES
