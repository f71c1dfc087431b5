"""Finding an interpreter on a machine of which nothing is known."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.runs.running_run import run_async

from trainmaster.backends.hosts.interpreter import find_python
from trainmaster.backends.ssh import Completed
from trainmaster.errors.errors import HostError

_NO_FURTHER = "/usr/bin /usr/local/bin /opt/conda/bin /opt/miniconda3/bin /venv/main/bin"


class Machine:
    """A machine with nothing but what a test puts into its home and on its PATH."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.path = folder / "programs"
        self.path.mkdir(parents=True)
        self.home.mkdir()

    async def run(
        self, command: Sequence[str], *, stdin: bytes = b"", timeout_s: float
    ) -> Completed:
        text = stdin.decode()
        for folder in _NO_FURTHER.split():  # this machine's own interpreters don't count
            text = text.replace(f" {folder} ", " ").replace(f" {folder};", ";")
        done = subprocess.run(
            list(command),
            cwd=self.home,
            env={"PATH": str(self.path), "HOME": str(self.home)},
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        return Completed(done.returncode, done.stdout, done.stderr)

    def program(self, path: str, script: str) -> Path:
        file = self.path.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script)
        file.chmod(0o755)
        return file

    def find(self) -> str:
        return run_async(lambda: find_python(self.run))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def real() -> str:
    """This interpreter under another name."""
    return f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'


def older(version: str = "3.8.10") -> str:
    row = "\\t".join(("python", "old", version, "%s", "-"))
    return f"#!/bin/sh\nprintf '\\n{row}\\n' \"$0\"\nexit 1\n"


@pytest.mark.parametrize(
    "path",
    [
        "programs/python3.12",
        "programs/python3",
        "programs/python",
        "home/miniconda3/bin/python3",
        "home/.pyenv/versions/3.11.4/bin/python3",
        "home/.local/share/uv/python/cpython-3.12.3-linux-x86_64-gnu/bin/python3",
    ],
)
def test_an_interpreter_is_found_wherever_it_usually_is(machine: Machine, path: str) -> None:
    machine.program(path, real())
    assert Path(machine.find()).resolve() == Path(sys.executable).resolve()


def test_one_that_is_too_old_is_passed_over(machine: Machine) -> None:
    machine.program("programs/python3", older())
    machine.program("home/miniforge3/bin/python3", real())
    assert Path(machine.find()).resolve() == Path(sys.executable).resolve()


def test_what_an_interpreters_start_prints_does_no_harm(machine: Machine) -> None:
    machine.program("programs/python3", f'#!/bin/sh\nprintf noise\nexec "{sys.executable}" "$@"\n')
    assert Path(machine.find()).resolve() == Path(sys.executable).resolve()


def test_a_module_in_the_login_folder_is_not_taken_for_the_standard_librarys(
    machine: Machine,
) -> None:
    machine.program("programs/python3", real())
    (machine.home / "json.py").write_text("raise SystemExit(1)\n")
    assert machine.find()


def test_those_that_are_too_old_are_named_with_the_remedy(machine: Machine) -> None:
    old = machine.program("programs/python3", older("3.6.9"))
    with pytest.raises(HostError) as caught:
        machine.find()
    assert caught.value.code == "PYTHON_MISSING"
    assert "(3.6.9)" in caught.value.message
    assert old.name in caught.value.message
    assert "apt install python3" in caught.value.fix


def test_no_interpreter_at_all_is_reported(machine: Machine) -> None:
    with pytest.raises(HostError, match="none at all") as caught:
        machine.find()
    assert caught.value.code == "PYTHON_MISSING"
