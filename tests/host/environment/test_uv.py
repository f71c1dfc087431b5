"""Environments that uv installs: it is given all settings of pip, and held to the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.host.fake_packages import make_environment, make_wheel
from support.host.prepared_run import Box, output_of


def uv_on_path(tmp_path: Path) -> str:
    """A search path with uv and little else."""
    uv = Path(sys.executable).with_name("uv")
    assert uv.exists(), "uv is not installed beside the tests' interpreter: run `make setup`"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").symlink_to(uv)
    return f"{tmp_path}/bin:/bin"


def fake_working_torch(folder: Path) -> Path:
    """As much of a PyTorch as the check asks for."""
    code = (
        "__version__ = '2.9.0'\n"
        "class ones:\n"
        "    def __init__(self, *size, device): pass\n"
        "    def __matmul__(self, other): return self\n"
        "    def sum(self): return 64.0 ** 3\n"
    )
    return make_wheel(folder, "torch", "2.9.0", files={"torch/__init__.py": code})


@pytest.mark.parametrize("by_file", [True, False])
def test_uv_searches_where_pip_would(box: Box, tmp_path: Path, by_file: bool) -> None:
    bare = make_environment(tmp_path / "bare", bare=True)
    wheels = tmp_path / "wheels"
    fake_working_torch(wheels)
    make_wheel(wheels, "foundbyuv")
    (box.folder / "requirements.txt").write_text("torch\n")
    (box.folder / "requirements-extra.txt").write_text(f"foundbyuv  # {by_file}\n")
    box.cache = tmp_path / "cache"
    box.variables |= {"PATH": uv_on_path(tmp_path), "PIP_FIND_LINKS": "", "PIP_NO_INDEX": ""}
    box.variables |= {"UV_CACHE_DIR": str(tmp_path / "uv"), "XDG_CONFIG_HOME": str(tmp_path)}
    if by_file:
        (tmp_path / "pip").mkdir()
        settings = f"[global]\nno-index = true\nfind-links = {wheels}\n"
        (tmp_path / "pip" / "pip.conf").write_text(settings)
    else:
        box.variables |= {"PIP_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1"}
    assert box.prepare(mode="given", python=str(bare), requirements=True) == 0, box.log
    assert box.settled["how"] == "built"
    assert "uv: " in box.log
    assert output_of(box.settled["python"], "import foundbyuv, torch; print(torch.__version__)")


def test_uv_takes_out_what_breaks_a_framework(box: Box, tmp_path: Path) -> None:
    fake = fake_working_torch(tmp_path / "fake")
    bare = make_environment(tmp_path / "bare", [fake], bare=True)
    wheels = tmp_path / "wheels"
    broken = {"torchvision/__init__.py": "raise RuntimeError('nms')\n"}
    make_wheel(wheels, "torchvision", "0.1", requires=["torch"], files=broken)
    imports = {"litgpt.py": "import torchvision\n"}
    make_wheel(wheels, "litgpt", "1.0", requires=["torchvision"], files=imports)
    forgiving = {"deepspeed.py": "VERSION = 'a wheel'\n"}
    make_wheel(wheels, "deepspeed", "1.0", requires=["torch"], files=forgiving)
    box.cache = tmp_path / "cache"
    box.variables |= {"PATH": uv_on_path(tmp_path), "UV_CACHE_DIR": str(tmp_path / "uv")}
    box.config(mode="given", python=str(bare), wheels=str(wheels), packages=["torch", "litgpt"])
    assert box.start().wait(timeout=240) != 0
    assert "uv: Uninstalled 1 package" in box.log
    assert "litgpt can't be imported" in box.log.splitlines()[-1]
    packages = ["torch", "deepspeed"]
    code = box.prepare(mode="given", python=str(bare), wheels=str(wheels), packages=packages)
    assert code == 0, box.log
    where = output_of(box.settled["python"], "import deepspeed; print(deepspeed.VERSION)")
    assert where == "a wheel"


def test_uv_leaves_the_torch_beneath_alone(box: Box, tmp_path: Path) -> None:
    fake = fake_working_torch(tmp_path / "fake")
    bare = make_environment(tmp_path / "bare", [fake], bare=True)
    make_wheel(tmp_path / "wheels", "ontop", requires=["torch>=2"])
    (box.folder / "requirements-extra.txt").write_text("ontop\n")
    box.cache = tmp_path / "cache"
    box.variables |= {"PATH": uv_on_path(tmp_path), "UV_CACHE_DIR": str(tmp_path / "uv")}
    wheels = str(tmp_path / "wheels")
    code = box.prepare(mode="given", python=str(bare), requirements=True, wheels=wheels)
    assert code == 0, box.log
    assert box.settled["how"] == f"on top of {bare}"
    where = output_of(box.settled["python"], "import ontop, torch; print(torch.__file__)")
    assert where.startswith(str(bare.parents[1]))
