"""The build of PyTorch without CUDA, on machines without a GPU if the indexes have it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.host.fake_packages import make_environment, make_wheel

from trainer_runtime.core.environment.torch_builds import cpu_build
from trainer_runtime.host.environment.installers import Installer, Wanted, install


@pytest.mark.parametrize(
    ("requirement", "build"),
    [
        ("torch==2.13.0", "torch==2.13.0+cpu"),
        ("torch==2.13.0+cu130", None),
        ("torch<2.11", None),
        ("torchvision==0.1", None),
    ],
)
def test_one_version_of_torch_has_a_build_for_the_cpu(requirement: str, build: str | None) -> None:
    assert cpu_build(requirement) == build


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pip", "uv"])
@pytest.mark.parametrize(
    ("builds", "chosen"),
    [
        (["2.13.0", "2.13.0+cpu", "2.13.0+cu130"], "2.13.0+cpu"),
        (["2.13.0", "2.13.0+cu130"], "2.13.0+cu130"),
        (["2.13.0"], "2.13.0"),
    ],
)
def test_the_build_for_the_cpu_is_taken_where_the_indexes_have_it(
    tmp_path: Path, kind: str, builds: list[str], chosen: str
) -> None:
    for version in builds:
        make_wheel(tmp_path / "wheels", "torch", version, files={"torch.py": ""})
    venv = tmp_path / "venv"
    python = make_environment(venv)
    for name, line in (("requirements", "torch==2.13.0"), ("preferred", "torch==2.13.0+cpu")):
        (venv / f"{name}.txt").write_text(f"{line}\n")
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    command = (sys.executable, "-m", "pip") if kind == "pip" else (uv,)
    reports: list[str] = []
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    install(
        Installer(kind, command),
        Wanted(venv, [venv / "requirements.txt"], None, [], None, venv / "preferred.txt"),
        reports.append,
        environment={
            **os.environ,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(tmp_path / "wheels"),
            "UV_CACHE_DIR": str(tmp_path / "uv"),
        },
        lock=lock,
    )
    os.close(lock)
    asked = "import importlib.metadata as m; print(m.version('torch'))"
    assert subprocess.check_output([python, "-c", asked], text=True).strip() == chosen
    assert any("the usual build" in line for line in reports) is (not chosen.endswith("+cpu"))
