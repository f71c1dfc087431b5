"""Environments with a framework on top of a PyTorch; its packages are small stand-ins."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.host.fake_packages import make_environment, make_wheel
from support.host.prepared_run import Box, output_of

from trainer_runtime.core.environment.requirements import normalised
from trainer_runtime.core.frameworks.packages import MODULES
from trainer_runtime.host.answer.facts import examine
from trainer_runtime.train.checks.framework_check import check

pytestmark = [pytest.mark.slow, pytest.mark.engine]

UNUSABLE = 77
# As torchvision's build for CUDA fails beside a PyTorch for the processor.
BROKEN = {"torchvision/__init__.py": "raise RuntimeError('operator nms does not exist')\n"}
IMPORTS_WHERE_FOUND = """\
import importlib.util
if importlib.util.find_spec('torchvision'):
    import torchvision
"""
SETUP = """\
import os
from setuptools import setup
import torch
assert os.environ['DS_BUILD_OPS'] == '0'
setup(name='deepspeed', version='0.1', py_modules=['deepspeed'])
"""


def needs(box: Box, *lines: str) -> None:
    (box.folder / "requirements.txt").write_text("".join(f"{x}\n" for x in ("torch>2", *lines)))


def make_sdist(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    root = f"{name}-{version}"
    with tarfile.open(folder / f"{root}.tar.gz", "w:gz") as sdist:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{root}/{path}")
            entry.size = len(text)
            sdist.addfile(entry, io.BytesIO(text.encode()))


def test_a_framework_comes_on_top_in_the_users_own_version(box: Box, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    for version in ("9.1", "9.2"):
        make_wheel(wheels, "litgpt", version, requires=["torch>=2"])
    needs(box, "something-of-an-earlier-attempt")
    (box.folder / "requirements-extra.txt").write_text("litgpt==9.2\n")
    packages = ["torch>2", "litgpt==9.1"]
    assert box.prepare(requirements=True, wheels=str(wheels), packages=packages) == 0, box.log
    assert box.settled["how"] == f"on top of {sys.executable}"
    assert output_of(box.settled["python"], "import litgpt; print(litgpt.VERSION)") == "9.2"


def test_what_breaks_a_framework_and_is_not_needed_is_taken_out(box: Box, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    make_wheel(wheels, "torchvision", "0.1", files=BROKEN)
    files = {"litgpt.py": IMPORTS_WHERE_FOUND}
    make_wheel(wheels, "litgpt", "9.3", requires=["torchvision"], files=files)
    needs(box, "litgpt==9.3")
    assert box.prepare(wheels=str(wheels)) == 0, box.log
    assert "torchvision can't be imported and isn't needed; taken out" in box.log
    assert output_of(box.settled["python"], "import litgpt; print('works')") == "works"


def test_a_module_that_cannot_be_imported_is_reported_with_its_reason() -> None:
    assert check(["json"]) == {}
    found = check(["json", "no.such.neighbour"])
    assert found == {"no.such.neighbour": "ModuleNotFoundError: No module named 'no'"}


def test_what_has_no_wheel_is_built_beside_the_torch_that_it_asks_for(
    box: Box, tmp_path: Path
) -> None:
    sources = {"setup.py": SETUP, "deepspeed.py": "VERSION = 'built'\n"}
    make_sdist(tmp_path / "sources", "deepspeed", "0.1", sources)
    elsewhere = os.environ.get("PIP_FIND_LINKS", "")
    box.variables["PIP_FIND_LINKS"] = f"{tmp_path / 'sources'} {elsewhere}".strip()
    needs(box, "deepspeed==0.1")
    assert box.prepare() == 0, box.log
    assert output_of(box.settled["python"], "import deepspeed; print(deepspeed.VERSION)") == "built"


def test_an_interpreter_that_has_everything_goes_before_one_to_build_on(
    box: Box, tmp_path: Path
) -> None:
    litgpt = make_wheel(tmp_path / "fake", "litgpt", "9.5")
    whole = make_environment(tmp_path / "whole", [litgpt])
    packages = next((tmp_path / "whole" / "lib").glob("python3*/site-packages"))
    torch = find_spec("torch")
    assert torch is not None and torch.origin is not None
    (packages / "beneath.pth").write_text(f"{Path(torch.origin).parents[1]}\n")
    box.variables["PATH"] = f"{whole.parent}:/usr/bin:/bin"
    needs(box, "litgpt==9.5")
    assert box.prepare() == 0, box.log
    assert Path(box.settled["python"]).parent == whole.parent
    assert box.settled["how"] == "as it is"


@pytest.mark.parametrize("mode", ["existing", "given"])
def test_an_interpreter_that_is_to_be_taken_must_have_the_framework(box: Box, mode: str) -> None:
    needs(box, "litgpt>=99")
    assert box.prepare(mode=mode, python=sys.executable) == UNUSABLE
    assert box.log.splitlines()[-1].endswith("lacks litgpt>=99")


def test_a_hosts_facts_name_the_frameworks_of_its_interpreter(tmp_path: Path) -> None:
    there = {normalised(item.metadata["Name"]): item.version for item in distributions()}
    expected = {name: there[name] for name in MODULES if name in there}
    assert examine(tmp_path)["packages"] == expected
