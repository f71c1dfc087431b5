"""`.ci/run` and the Makefile: which tests run where, and what is reported of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_MAKE = """\
#!/bin/sh
echo "$1" >> "$NOTED"
test "$1" != "$FAILS"
"""


@pytest.mark.parametrize(("fails", "code"), [("test", 1), ("test-engines", 1), ("none", 0)])
def test_both_suites_run_and_are_reported_whichever_fails(
    tmp_path: Path, fails: str, code: int
) -> None:
    make = tmp_path / "make"
    make.write_text(_MAKE)
    make.chmod(0o755)
    noted = tmp_path / "noted"
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NOTED": str(noted), "FAILS": fails}
    ran = subprocess.run([_ROOT / ".ci/run"], env=environment, capture_output=True, text=True)
    assert ran.returncode == code
    assert noted.read_text().split() == ["test", "test-engines"]
    assert [line.split(": ") for line in ran.stdout.splitlines()] == [
        [f"make {target}", "FAILED" if target == fails else "passed"]
        for target in ("test", "test-engines")
    ]


def test_the_makefile_works_in_a_folder_with_spaces(tmp_path: Path) -> None:
    checkout = tmp_path / "a path with spaces"
    (checkout / "tests/a room").mkdir(parents=True)
    shutil.copy(_ROOT / "Makefile", checkout)
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)

    def made(*words: str) -> str:
        return subprocess.check_output(
            ["make", "--no-print-directory", *words], cwd=checkout, text=True
        )

    targets = re.findall(r"^([a-z-]+):.*##", (_ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [line.split()[0] for line in made("help").splitlines()] == targets
    assert "tests/a room" in made("test-room", "ROOM=a room").splitlines()


def test_the_suites_share_all_tests_between_them() -> None:
    makefile = (_ROOT / "Makefile").read_text()
    assert makefile.count("-m '$(WITHOUT_ENGINES)'") == 1
    assert makefile.count("-m 'not ($(WITHOUT_ENGINES))'") == 1
