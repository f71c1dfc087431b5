"""The bundle of a spec, written to be read: by command, and below the downloads by tool."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from support.mcp.mcp_client import answer_of, connected, error_of
from support.train.preference_data import save_tiny_model

from trainmaster.answers.runs import RenderAnswer
from trainmaster.errors.errors import UsageError
from trainmaster.runs.export.render_spec import MOST_BYTES, portable, render_spec
from trainmaster.runs.planning.plan_run import plan_spec
from trainmaster.sync.workspace import Workspace

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


@pytest.fixture
def rendered(workspace: Workspace, corpus: Path, tmp_path: Path) -> Path:
    """The bundle, copied with other times to a place where nothing else of it is left."""

    async def render() -> None:
        await render_spec(workspace, _SPEC.format(corpus=corpus), tmp_path / "bundle")

    anyio.run(render)
    copied = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "bundle", copied, copy_function=shutil.copyfile)
    shutil.rmtree(tmp_path / "bundle")
    corpus.rename(tmp_path / "gone")
    return copied


@pytest.mark.slow
def test_a_copied_folder_trains_by_hand_and_shows_its_state(rendered: Path) -> None:
    done = by_hand(rendered)
    assert done.returncode == 0, done.stderr
    assert (rendered / "final" / "model.safetensors").is_file()
    page = (rendered / "training_status.md").read_text()
    assert "State: **completed**" in page and "step 20 of 20" in page
    index = json.loads((rendered / "checkpoints_index.json").read_text())
    assert [(one["step"], one["verified"]) for one in index["checkpoints"]][-1] == (20, True)


def test_a_copied_folder_whose_data_was_changed_is_refused(rendered: Path) -> None:
    (text,) = (one for one in (rendered / "data").rglob("*") if one.is_file())
    text.write_text(text.read_text().swapcase())
    done = by_hand(rendered)
    assert done.returncode != 0
    assert "changed since the plan" in done.stderr
    assert not (rendered / "events.jsonl").exists()


def by_hand(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable}
    command = ["sh", str(folder / "train.sh")]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.long
def test_a_model_of_this_machine_lies_in_the_folder_and_a_large_one_is_named(
    workspace: Workspace, corpus: Path, tmp_path: Path
) -> None:
    model = save_tiny_model(tmp_path / "tiny")
    spec = (
        f"name: tuned\nframework: hf\nmodel: {{path: {model}}}\n"
        f"data: {{sources: [{{path: {corpus}}}], seq_len: 32}}\nsteps: 4\nhost: debug\n"
    )

    async def render(folder: str, most_bytes: int = MOST_BYTES) -> RenderAnswer:
        return await render_spec(workspace, spec, tmp_path / folder, most_bytes=most_bytes)

    whole = anyio.run(render, "whole")
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    place = config["model"]["path"]
    assert place == config["data"]["tokenizer"] == "inputs/model/tiny"
    copied = tmp_path / "whole" / place / "model.safetensors"
    assert copied.read_bytes() == (model / "model.safetensors").read_bytes()
    assert str(tmp_path) not in json.dumps({**config, "environment": None})
    assert whole.files[:3] == ["config.json", "data", "inputs"]

    parted = anyio.run(render, "parted", 100)
    assert [one.partition(" has ")[0] for one in parted.warnings or ()][:2] == [
        "The data",
        "The model",
    ]
    config = json.loads((tmp_path / "parted" / "config.json").read_text())
    assert config["model"]["path"] == str(model)
    assert not {"data", "inputs"} & set(parted.files)
    assert config["data"]["sources"][0]["path"] == str(corpus)
    assert "upload" not in config["data"] and "inputs" not in config
    assert "copied" in whole.next_step and "copied" not in parted.next_step


@pytest.mark.parametrize(("most_bytes", "inside"), [(4 << 30, True), (100, False)])
def test_what_a_launch_would_upload_is_awaited_by_no_rendered_folder(
    workspace: Workspace,
    corpus: Path,
    most_bytes: int,
    inside: bool,
) -> None:
    planned = anyio.run(plan_spec, workspace, _SPEC.format(corpus=corpus), None, [])
    data = planned.config["data"]
    (name,) = (source["name"] for source in data["sources"])
    data["sources"][0]["path"] = f"{planned.facts.cache_folder}/sources/0123/{name}"
    data |= {"upload": {"sources": {name: str(corpus)}, "size_bytes": 9}, "prepare": "here"}
    found = portable(planned, workspace.home, most_bytes=most_bytes).config["data"]
    assert "upload" not in found and found["prepare"] == "box"
    assert found["sources"][0]["path"] == (f"data/{name}" if inside else str(corpus))


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
            assert answer["next_step"].endswith(
                '`launch(spec="SPEC")` starts the same under supervision.'
            )
            return str(answer["folder"])

    folder = Path(anyio.run(call))
    assert folder == Path(environment["TRAINMASTER_HOME"]) / "downloads" / "shown"
    assert (folder / "train.py").is_file()
