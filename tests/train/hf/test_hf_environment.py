"""HF's trainer installed from the package index, on top of a PyTorch that is there.

By uv: pip, which takes half a minute for it, installs PyTorch in `test_environment_built.py`.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest
from support.host.fake_packages import make_environment
from support.host.prepared_run import make_box, output_of

from trainmaster.plan.decisions.requirements import requirements
from trainmaster.plan.frameworks import FRAMEWORKS

pytestmark = pytest.mark.engine

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def with_torch_alone(folder: Path) -> Path:
    """An interpreter that has the tests' PyTorch, what that needs, and nothing else."""
    python = make_environment(folder, bare=True)
    packages = next((folder / "lib").glob("python3*/site-packages"))
    wanted, seen = ["torch"], set[str]()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # another platform's
        for top in {path.parts[0] for path in distribution.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(str(distribution.locate_file(top)))
        needed = [line for line in distribution.requires or () if "extra ==" not in line]
        wanted += [found.group() for line in needed if (found := _NAME.match(line))]
    return python


def test_the_framework_is_installed_in_its_versions_and_the_torch_stays(tmp_path: Path) -> None:
    base = with_torch_alone(tmp_path / "base")
    box = make_box(tmp_path / "runs" / "small-abc234", tmp_path / "cache")
    lines = ("torch==2.13.0", *requirements(FRAMEWORKS["hf"]))
    (box.folder / "requirements.txt").write_text("".join(f"{line}\n" for line in lines))
    (box.folder / "requirements-extra.txt").write_text("six\n")
    uv = Path(sys.executable).with_name("uv")
    assert uv.exists(), "uv is not installed beside the tests' interpreter: run `make setup`"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").symlink_to(uv)
    box.variables |= {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "UV_CACHE_DIR": str(tmp_path / "uv")}
    (tmp_path / "constraints.txt").write_text("six<=2\n")  # which uv refuses beside digests
    box.variables["PIP_CONSTRAINT"] = str(tmp_path / "constraints.txt")

    assert box.prepare(mode="given", python=str(base), requirements=True) == 0, box.log

    assert box.settled["how"] == f"on top of {base}"
    # The preparation has imported them there (framework_check); that takes seconds.
    printed = output_of(
        box.settled["python"],
        "from importlib import metadata, util; "
        "print(*map(metadata.version, ('transformers', 'accelerate', 'datasets')), "
        "util.find_spec('torch').origin)",
    )
    *versions, torch = printed.split()
    assert [f"=={version}" for version in versions] == [
        line[line.index("=") :] for line in lines[1:]
    ]
    assert str(tmp_path / "base") in torch
