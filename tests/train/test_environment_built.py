"""A training whose environment does not exist yet: PyTorch is really installed for it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.host.fake_packages import make_wheel
from support.runs.running_run import CommandLine, small_spec

pytestmark = pytest.mark.engine

BASE = "/usr/bin/python3"


def torch_of(python: str) -> str | None:
    code = "import importlib.metadata as m; print(m.version('torch'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or None


@pytest.fixture
def base() -> str:
    if torch_of(BASE) is not None:
        pytest.skip(f"{BASE} has PyTorch")
    return BASE


def test_an_interpreter_without_pytorch_gets_one_and_the_training_completes(
    command: CommandLine, base: str, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    make_wheel(wheels, "tinypack")
    (tmp_path / "own.txt").write_text(f"--find-links {wheels}\ntinypack\n")
    environment = f"{{python: {base}, requirements: {tmp_path}/own.txt}}"
    spec = tmp_path / "spec.yaml"
    spec.write_text(small_spec(tmp_path, environment=environment, steps="20"))
    command.environment["PIP_COMPILE"] = "0"  # all of PyTorch takes half a minute
    planned = command("plan", str(spec))
    decided = {item["field"]: item["value"] for item in planned["decisions"]}
    assert planned["estimates"]["disk_gib"] > 1
    assert decided["environment.torch"] == "torch==2.13.0"

    run = command("launch", str(spec))["run_id"]
    ended = command("wait", run, "--until", "end", "--timeout", "240")
    assert ended["state"] == "completed", command("logs", run, "--stream", "setup")
    folder = command.folder(run)
    settled = json.loads((folder.root / "attempts/1/environment.json").read_text())
    assert settled["how"] == "built"
    assert settled["torch"].startswith("2.13.0")
    assert str(folder.root.parents[1] / "cache" / "venvs") in settled["python"]
    log = "\n".join(command("logs", run, "--stream", "setup", "--limit", "200")["lines"])
    assert "pip: Successfully installed" in log

    again = command("launch", str(spec))["run_id"]
    ended = command("wait", again, "--until", "end", "--timeout", "240")
    assert ended["state"] == "completed"
    record = command.folder(again).root / "attempts/1/environment.json"
    assert json.loads(record.read_text()) == settled
