"""The bundle of a spec, written to be read: by command, and below the downloads by tool."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
import pytest
from support.mcp.mcp_client import answer_of, connected, error_of

from trainmaster.runs.render import render_spec
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import UsageError

_SPEC = """\
name: shown
framework: nanogpt
model: {{n_layer: 1, n_head: 2, d_model: 32}}
data: {{sources: [{{path: "{corpus}"}}], seq_len: 32}}
batch: {{tokens: 256}}
steps: 20
host: debug
"""


def test_the_bundle_that_a_launch_would_place_is_written_whole(
    workspace: Workspace, corpus: Path, tmp_path: Path
) -> None:
    async def render(folder: Path) -> list[str]:
        spec = _SPEC.format(corpus=corpus)
        return (await render_spec(workspace, spec, folder, sets=["steps=30"])).files

    target = tmp_path / "new" / "bundle"
    files = anyio.run(render, target)
    assert set(files) >= {"train.py", "train.sh", "config.json", "trainer_runtime"}
    assert sorted(one.name for one in target.iterdir()) == files
    config = json.loads((target / "config.json").read_text())
    assert (config["run_id"], config["steps"]) == ("shown", 30)
    assert os.access(target / "train.sh", os.X_OK)
    assert [one.name for one in target.parent.iterdir()] == ["bundle"]
    with pytest.raises(UsageError, match="is not an empty folder"):
        anyio.run(render, target)
    assert workspace.control.runs() == []


def test_a_tool_writes_it_below_the_downloads_and_nowhere_else(
    environment: dict[str, str], corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(corpus.parent)
    spec = _SPEC.format(corpus=corpus)

    async def call() -> str:
        async with connected(environment) as client:
            for folder in ("../out", str(corpus.parent / "out"), "../settings.yaml"):
                refused = await error_of(client, "render", spec=spec, folder=folder)
                assert refused.startswith("BAD_ARGUMENT: ")
            outside = _SPEC.format(corpus="/etc")
            refused = await error_of(client, "render", spec=outside, folder="shown")
            assert refused.startswith("POLICY_FILE: ")
            answer = await answer_of(client, "render", spec=spec, folder="shown")
            assert answer["next_step"].endswith('`launch(spec="SPEC")` starts the same.')
            return str(answer["folder"])

    folder = Path(anyio.run(call))
    assert folder == Path(environment["TRAINMASTER_HOME"]) / "downloads" / "shown"
    assert (folder / "train.py").is_file()
