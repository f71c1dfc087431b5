"""What planning tools answer: short plans, the fields of a framework, and folders for others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.mcp.mcp_client import answer_of, connected, error_of
from support.train.model_folders import write_model

from trainmaster.cli import run
from trainmaster.plan.frameworks import FRAMEWORKS

_SPEC = """\
name: asked
framework: {framework}
model: {{n_layer: 2, n_head: 2, d_model: 64}}
data: {{sources: [{{path: "{corpus}"}}], seq_len: 64}}
batch: {{tokens: 1024}}
steps: 100
host: debug
"""
_ONE_SCREEN = 70  # lines


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "corpus.txt"
    path.write_text("Some text to train on. " * 5000)
    return path


def size(answer: dict[str, Any]) -> int:
    return len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")))


def test_a_plan_is_short_and_gives_its_reasons_when_asked(
    environment: dict[str, str], corpus: Path
) -> None:
    async def scenario() -> None:
        async with connected(environment) as client:
            for framework in ("nanogpt", "hf", "litgpt"):
                spec = _SPEC.format(framework=framework, corpus=corpus)
                plan = await answer_of(client, "plan_run", spec=spec)
                assert size(plan) <= 1_800
                assert not any("reason" in one for one in plan["decisions"])
                detailed = await answer_of(client, "plan_run", spec=spec, detail=True)
                assert all(one["reason"] for one in detailed["decisions"])
                shown = {one["field"]: one["value"] for one in detailed["decisions"]}
                assert {one["field"]: one["value"] for one in plan["decisions"]}.items() <= (
                    shown.items()
                )

    anyio.run(scenario)


def test_a_plan_for_machines_that_are_not_there_is_asked_for_by_their_names(
    environment: dict[str, str], corpus: Path
) -> None:
    spec = _SPEC.format(framework="hf", corpus=corpus).replace("host: debug\n", "host: unknown\n")
    spec = spec.replace("{n_layer: 2, n_head: 2, d_model: 64}", "{preset: llama-3-8b}")

    async def scenario() -> None:
        async with connected(environment) as client:
            single = await answer_of(client, "plan_run", spec=spec, on="h100:8")
            assert single["host"] == "h100:8"
            assert size(single) <= 3_600
            several = await answer_of(client, "plan_run", spec=spec, on="t4,h100:8,h200:8")
            assert [row["fits"] for row in several["targets"]] == [False, True, True]
            refused = await error_of(client, "plan_run", spec=spec, on="h1000")
            assert "GPU_NOT_FOUND" in refused
            empty = await error_of(client, "plan_run", spec=spec, on="")
            assert empty.startswith("BAD_ARGUMENT: on: It names no machine")
            nested = await error_of(client, "plan_run", spec={"name": "asked"})
            assert nested.startswith("BAD_ARGUMENT: spec: It is a path, or YAML text")

    anyio.run(scenario)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_alone_is_answered_by_its_fields_on_one_screen(
    environment: dict[str, str], framework: str
) -> None:
    async def scenario() -> None:
        async with connected(environment) as client:
            found = await answer_of(client, "plan_run", spec=f"framework: {framework}\n")
            names = [line.partition(":")[0] for line in found["fields"]]
            assert len(names) <= _ONE_SCREEN and max(map(len, found["fields"])) <= 200
            assert {"name", "framework", "steps"} <= set(names)
            assert ("script.pattern" in names) is (framework == "script")
            assert ("model.n_layer" in names) is (framework != "script")
            everything = await answer_of(
                client, "plan_run", spec=f"framework: {framework}", detail=True
            )
            of_all = {line.partition(":")[0] for line in everything["fields"]}
            assert {"recovery.on_oom", *names} <= of_all
            unknown = await error_of(client, "plan_run", spec="framework: keras")
            assert "framework" in unknown

    anyio.run(scenario)


def test_export_writes_below_the_download_folder_alone_and_names_the_engines(
    environment: dict[str, str], corpus: Path
) -> None:
    spec = _SPEC.format(framework="nanogpt", corpus=corpus)

    async def scenario() -> None:
        async with connected(environment) as client:
            made = await answer_of(client, "export", spec=spec, folder="there", to="slurm")
            downloads = Path(environment["TRAINMASTER_HOME"]) / "downloads"
            assert Path(made["folder"]).is_relative_to(downloads)
            assert {"train.py", "job.sbatch"} <= set(made["files"])
            elsewhere = {"spec": spec, "folder": "../../elsewhere", "to": "slurm"}
            assert "does not lie below" in await error_of(client, "export", **elsewhere)
            unnamed = {"spec": spec, "folder": "k", "to": "kubernetes"}
            assert "no image is given" in await error_of(client, "export", **unnamed)
            assert "skypilot" in await error_of(client, "export", spec=spec, folder="n", to="nomad")

    anyio.run(scenario)


def test_conversations_without_a_chat_template_are_refused_alike_on_both_faces(
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"messages": said}) + "\n")
    model = write_model(tmp_path / "model")
    data = {"sources": [{"path": str(rows), "format": "jsonl"}], "seq_len": 64}
    spec = {"name": "chat", "framework": "trl", "method": "sft", "data": data, "steps": 4}
    text = json.dumps({**spec, "model": {"path": str(model)}, "host": "debug"})
    (tmp_path / "spec.yaml").write_text(text)
    monkeypatch.setenv("TRAINMASTER_HOME", environment["TRAINMASTER_HOME"])
    assert run(["plan", str(tmp_path / "spec.yaml"), "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["field"]) == ("TOKENIZER_UNUSABLE", "data.tokenizer")

    async def scenario() -> None:
        async with connected(environment) as client:
            refused = await error_of(client, "plan_run", spec=text)
            assert refused.startswith(f"TOKENIZER_UNUSABLE: {error['message']}")

    anyio.run(scenario)
