"""What a run's name means: to who reads the newest of its line, to who acts one run alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
import pytest
from support.mcp.mcp_client import answer_of, connected, error_of
from support.runs.running_run import CommandLine

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.store.run import Run
from trainmaster.sync.workspace import open_workspace

_SPEC = """\
name: my-gpt
framework: nanogpt
model: {n_layer: 1, n_head: 2, d_model: 32}
data: {sources: [{path: CORPUS}], seq_len: 32}
batch: {tokens: 256}
steps: 40
env: {TRAINMASTER_STEP_S: "30"}
host: debug
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_text("A line of text to learn from.\n" * 400)
    path = tmp_path / "spec.yaml"
    path.write_text(_SPEC.replace("CORPUS", str(tmp_path / "corpus")))
    return str(path)


def _shown(command: CommandLine, *arguments: str) -> tuple[int, str, str]:
    return command._here(*arguments)


def test_a_second_run_of_a_name_is_announced_read_by_it_and_never_guessed(
    command: CommandLine, spec: str
) -> None:
    first = command("launch", spec)
    assert "name_taken" not in first
    code, text, _ = _shown(command, "launch", spec)
    assert code == 0
    assert text.splitlines()[0] == "my-gpt exists: this run is my-gpt-2."
    second = command("status", "my-gpt-2")["run_id"]
    code, text, errors = _shown(command, "status", "my-gpt", "--json")
    assert code == 0 and f'"run_id":"{second}"' in text.replace(": ", ":")
    assert "my-gpt means the newest run of that name: my-gpt-2." in errors
    for words in (("stop",), ("resume",), ("clean", "--yes"), ("alerts", "remove", "failed")):
        refused = command(*words, "my-gpt", code=1)["error"]
        assert refused["code"] == "RUN_AMBIGUOUS"
        assert first["run_id"] in refused["message"] and f"{second} (" in refused["message"]
        assert " ago)" in refused["message"]
    assert "Did you mean my-gpt" in command("status", "my-gtp", code=1)["error"]["fix"]

    async def by_tools() -> None:
        async with connected(command.environment) as client:
            third = await answer_of(client, "launch", spec=spec)
            assert third["name_taken"] == "my-gpt exists: this run is my-gpt-3."
            result = await client.call_tool("get_run", {"run_id": "my-gpt"})
            assert result.structured_content is not None
            assert result.structured_content["run_id"] == third["run_id"]
            assert "my-gpt means the newest run" in result.content[-1].text  # type: ignore[union-attr]
            error = await error_of(client, "stop", run_id="my-gpt")
            assert error.startswith("RUN_AMBIGUOUS: 3 runs") and third["run_id"] in error
            assert "Did you mean my-gpt" in await error_of(client, "stop", run_id="mygpt")
            two = await answer_of(client, "plot_metrics", run_id=["my-gpt", "my-gpt-2"])
            assert list(two["runs"]) == [first["run_id"], second]
            for run_id in (first["run_id"], "my-gpt-2", third["run_id"]):
                await answer_of(client, "stop", run_id=run_id)

    anyio.run(by_tools)


def test_a_name_with_a_number_of_its_own_is_another_line(tmp_path: Path) -> None:
    environment = {**os.environ, "TRAINMASTER_HOME": str(tmp_path)}
    with open_workspace(environment) as workspace:
        for t, (name, wanted) in enumerate((("llama", "llama"), ("llama-2", "llama-2"))):
            spec = json.dumps({"name": wanted})
            run = Run(f"{name}-abcdef", name, float(t), "gpu1", spec, {}, {}, {})
            workspace.control.add_run(
                run,
                Desired(DesiredState.RUNNING, generation=1),
                "process",
                str(tmp_path / name),
                None,
            )
        assert workspace.control.run("llama").name == "llama"
        assert [run.name for run in workspace.control.runs_of_line("llama")] == ["llama"]
