"""A spec, exported as a folder for another engine."""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path

import anyio
import pytest

from trainmaster.errors.errors import UsageError
from trainmaster.runs.export.export import export_spec
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
_IMAGE = "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime"


def test_the_folder_holds_the_run_and_the_engines_file(
    workspace: Workspace, corpus: Path, tmp_path: Path
) -> None:
    async def export() -> None:
        spec = _SPEC.format(corpus=corpus)
        sets = ["compute.gpu=h100"]  # of which no host here has one
        answer = await export_spec(workspace, spec, tmp_path / "job", to="slurm", sets=sets)
        assert {"job.sbatch", "train.sh", "config.json", "data"} <= set(answer.files)
        assert f"cd {shlex.quote(str(tmp_path / 'job'))} && sbatch job.sbatch" in answer.next_step

    anyio.run(export)
    config = json.loads((tmp_path / "job" / "config.json").read_text())
    assert (config["compute"]["device"], config["compute"]["gpu"]) == ("cuda", "h100")
    assert "#SBATCH --gres=gpu:1\n" in (tmp_path / "job" / "job.sbatch").read_text()
    assert workspace.control.runs() == []


@pytest.mark.parametrize(("to", "image"), [("skypilot", None), ("docker-compose", _IMAGE)])
def test_a_spec_for_several_nodes_is_refused_for_engines_of_one_machine(
    workspace: Workspace, corpus: Path, tmp_path: Path, to: str, image: str | None
) -> None:
    async def export() -> None:
        spec, sets = _SPEC.format(corpus=corpus), ["framework=hf", "compute.nodes=2"]
        with pytest.raises(UsageError, match="is for one machine") as refused:
            await export_spec(workspace, spec, tmp_path / "job", to=to, image=image, sets=sets)
        assert refused.value.field == "compute.nodes"

    anyio.run(export)
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize(
    ("to", "image", "what"),
    [
        ("ray", None, "not an engine"),
        ("kubernetes", None, "no image is given"),
        ("docker-compose", "a name\nwith: more", "not an image"),
        ("docker-compose", "a" * 600, "not an image"),
        ("docker-compose", "--privileged", "not an image"),
        ("slurm", _IMAGE, "takes no image"),
    ],
)
def test_what_an_engine_can_not_take_is_refused_before_anything_is_written(
    workspace: Workspace, corpus: Path, tmp_path: Path, to: str, image: str | None, what: str
) -> None:
    spec, folder = _SPEC.format(corpus=corpus), tmp_path / "job"
    with pytest.raises(UsageError, match=what) as refused:
        anyio.run(partial(export_spec, workspace, spec, folder, to=to, image=image))
    assert refused.value.field in ("to", "image")
    assert not folder.exists()


@pytest.mark.parametrize(
    "image", [_IMAGE, "torch", "registry.example:5000/a/b_c:1", f"a/b@sha256:{'0f' * 32}"]
)
def test_the_names_of_images_are_taken(
    workspace: Workspace, corpus: Path, tmp_path: Path, image: str
) -> None:
    spec, folder = _SPEC.format(corpus=corpus), tmp_path / "job"
    anyio.run(partial(export_spec, workspace, spec, folder, to="docker-compose", image=image))
    assert f"image: {image}\n" in (folder / "compose.yaml").read_text()


def test_the_other_engine_starts_the_container_of_a_spec_that_names_one(
    workspace: Workspace, corpus: Path, tmp_path: Path
) -> None:
    contained = f"compute: {{launcher: docker, image: '{_IMAGE}', shm_size: 2g}}\n"
    spec = _SPEC.format(corpus=corpus) + contained

    async def export() -> None:
        await export_spec(workspace, spec, tmp_path / "compose", to="docker-compose")
        answer = await export_spec(workspace, spec, tmp_path / "slurm", to="slurm")
        assert "compute.image is left out" in str(answer.warnings)

    anyio.run(export)
    assert f"image: {_IMAGE}\n" in (tmp_path / "compose" / "compose.yaml").read_text()
    compute = json.loads((tmp_path / "compose" / "config.json").read_text())["compute"]
    assert (compute["launcher"], compute["image"]) == ("process", None)


@pytest.mark.parametrize("to", ["slurm", "skypilot", "kubernetes", "docker-compose"])
def test_every_engine_takes_a_program(workspace: Workspace, tmp_path: Path, to: str) -> None:
    program = tmp_path / "program"
    program.mkdir()
    (program / "train.py").write_text("print(1)\n")
    command = f"{{path: {program}, command: [python3, train.py]}}"
    spec = f"name: own\nframework: script\nscript: {command}\n"
    image = None if to in ("slurm", "skypilot") else _IMAGE
    anyio.run(partial(export_spec, workspace, spec, tmp_path / "job", to=to, image=image))
    assert (tmp_path / "job" / "train.sh").exists()


@pytest.mark.parametrize("more", ["", ", requirements: more.txt"])
@pytest.mark.parametrize("to", ["skypilot", "kubernetes", "docker-compose"])
def test_an_interpreter_of_one_host_is_left_out_where_another_trains(
    workspace: Workspace, corpus: Path, tmp_path: Path, to: str, more: str
) -> None:
    (tmp_path / "more.txt").write_text("einops\n")
    path = tmp_path / "spec.yaml"
    own = f"environment: {{python: /nowhere/python{more}}}\n"
    path.write_text(_SPEC.format(corpus=corpus) + own)
    image = None if to == "skypilot" else _IMAGE

    async def export() -> None:
        answer = await export_spec(workspace, str(path), tmp_path / "job", to=to, image=image)
        assert "environment.python is left out" in str(answer.warnings)

    anyio.run(export)
    texts = [file.read_text() for file in (tmp_path / "job").iterdir() if file.is_file()]
    assert not any("/nowhere" in text for text in texts)
    assert any("einops" in text for text in texts) == bool(more)
