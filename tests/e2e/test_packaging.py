"""The package as it is built: whole as a wheel, and the same from the source distribution."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.runs.running_run import small_spec

pytestmark = pytest.mark.engine

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("built")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(PROJECT)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


def test_the_wheel_from_the_source_distribution_holds_everything(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder, prefix in (
        ("server/trainmaster", "trainmaster"),
        ("trainer_runtime", "trainer_runtime"),
        ("templates", "trainmaster/templates"),
        ("skills", "trainmaster/skills"),
    ):
        tracked = subprocess.run(
            ["git", "ls-files", folder], cwd=PROJECT, capture_output=True, text=True, check=True
        )
        names = {f"{prefix}{name.removeprefix(folder)}" for name in tracked.stdout.splitlines()}
        assert names - inside == set(), folder


def test_the_installed_package_runs_from_anywhere_without_the_checkout(
    built: Path, tmp_path: Path
) -> None:
    [wheel] = built.glob("*.whl")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*command, "--target", str(site), str(wheel)], check=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(site),
        "TRAINMASTER_HOME": str(tmp_path / "home"),
    }
    script = (
        "import trainmaster, trainer_runtime\n"
        f"assert trainmaster.__file__.startswith({str(site)!r})\n"
        f"assert trainer_runtime.__file__.startswith({str(site)!r})\n"
        "from trainmaster.cli import main; main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "launch", small_spec(tmp_path, host="debug"), "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "home" / "debug" / "runs" / json.loads(done.stdout)["run_id"]
    expected = (PROJECT / "tests/golden/scripts/nanogpt_modern.py").read_bytes()
    assert (folder / "train.py").read_bytes() == expected
