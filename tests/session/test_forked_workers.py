"""The workers that `make test` runs the tests in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
_SHARED = """\
import pytest

@pytest.fixture(scope="session", autouse=True)
def shared(tmp_path_factory):
    yield
    (tmp_path_factory.getbasetemp() / "torn-down").touch()
"""
_DYING = """\
import os, signal, warnings

def test_first(): pass
def test_killed(): os.kill(os.getpid(), signal.SIGKILL)
def test_after_it(): warnings.warn("something is odd")
def test_failing():
    print("said before")
    assert [1, 2] == [1, 3]
"""
_QUICK = """\
import pytest

@pytest.mark.parametrize("case", range(5))
def test_case(case, tmp_path): assert tmp_path.parent.name.startswith("worker")
"""


def test_all_tests_are_run_and_reported_though_a_worker_is_killed(tmp_path: Path) -> None:
    for name, text in (("conftest", _SHARED), ("test_dying", _DYING), ("test_quick", _QUICK)):
        (tmp_path / f"{name}.py").write_text(text)
    output = _run_by_two(tmp_path, "-ra", f"--basetemp={tmp_path / 'own'}")
    assert "= 2 failed, 7 passed, 1 warning in " in output
    summary = output.split("short test summary info")[1]
    assert "::test_killed - its worker ended with -9" in summary
    assert "::test_failing - assert [1, 2] == [1, 3]" in summary
    assert "said before" in output and "something is odd" in output
    # A third took over where one was killed; who ran a test tore down what it had set up.
    assert len(list(tmp_path.glob("own/worker*"))) == 3
    assert list(tmp_path.glob("own/worker*/torn-down"))


def test_the_first_failure_stops_all_workers_where_that_is_wanted(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"test_{number}.py").write_text("def test_it(): assert False")
    output = _run_by_two(tmp_path, "-x")
    assert "stopping after " in output
    assert output.count("FAILED") <= 2


def _run_by_two(folder: Path, *words: str) -> str:
    """What pytest prints of a folder's tests, which fail."""
    own = ["-p", "support.session.forked_workers", "--workers=2"]
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(_TESTS)}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *own, *words, str(folder)],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return ran.stdout
