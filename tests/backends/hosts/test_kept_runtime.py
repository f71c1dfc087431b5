"""The runtime that this machine's runs share, until one of them needs its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.backends.hosts.kept_runtime import put_runtime

MODULE = "trainer_runtime/sums.py"
FILES = {"trainer_runtime/__init__.py": b"", MODULE: b"def two():\n    return 1 + 1\n"}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def kept_copy(cache: Path) -> Path:
    [kept] = (cache / "runtime").iterdir()
    return kept


def code_of(folder: Path) -> str:
    """The file that Python takes the module's code from, in a run's folder."""
    command = [sys.executable, "-B", "-v", "-c", "import trainer_runtime.sums"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    loaded = [line for line in done.stderr.splitlines() if "# code object from" in line]
    [found] = [line for line in loaded if "sums" in line]
    return found


def test_runs_share_one_copy_and_compile_nothing(cache: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        put_runtime(cache, FILES, tmp_path / name)
    assert (tmp_path / "first" / MODULE).samefile(tmp_path / "second" / MODULE)
    assert f"sums.{sys.implementation.cache_tag}.pyc" in code_of(tmp_path / "second")


def test_a_run_stays_whole_when_the_copy_is_removed(cache: Path, tmp_path: Path) -> None:
    put_runtime(cache, FILES, tmp_path / "run")
    shutil.rmtree(cache)
    assert {name: (tmp_path / "run" / name).read_bytes() for name in FILES} == FILES


def test_a_copy_that_was_changed_is_made_again(cache: Path, tmp_path: Path) -> None:
    put_runtime(cache, FILES, tmp_path / "first")
    changed = kept_copy(cache) / MODULE
    changed.chmod(0o600)
    changed.write_bytes(b"broken")
    put_runtime(cache, FILES, tmp_path / "second")
    assert (tmp_path / "second" / MODULE).read_bytes() == FILES[MODULE]
    assert (tmp_path / "first" / MODULE).read_bytes() == b"broken"


def test_another_version_has_a_copy_of_its_own(cache: Path, tmp_path: Path) -> None:
    put_runtime(cache, FILES, tmp_path / "first")
    put_runtime(cache, {**FILES, MODULE: b"pass\n"}, tmp_path / "second")
    assert len(list((cache / "runtime").iterdir())) == 2
    assert (tmp_path / "first" / MODULE).read_bytes() == FILES[MODULE]


def test_files_that_cannot_be_linked_are_written(cache: Path, tmp_path: Path) -> None:
    cache.write_text("no folder")
    put_runtime(cache, FILES, tmp_path / "run")
    written = {
        path.relative_to(tmp_path / "run").as_posix(): path.read_bytes()
        for path in (tmp_path / "run").rglob("*.py")
    }
    assert written == FILES


def test_processes_that_begin_at_once_all_get_everything(cache: Path, tmp_path: Path) -> None:
    files = {f"trainer_runtime/part_{n % 20}/module_{n}.py": b"pass\n" for n in range(100)}
    program = (
        "import json, sys\nfrom pathlib import Path\n"
        "from trainmaster.backends.hosts.kept_runtime import put_runtime\n"
        "files = {name: text.encode() for name, text in json.load(sys.stdin).items()}\n"
        "put_runtime(Path(sys.argv[1]), files, Path(sys.argv[2]))\n"
    )
    given = json.dumps({name: data.decode() for name, data in files.items()})
    started = []
    for number in range(4):
        command = [sys.executable, "-c", program, str(cache), str(tmp_path / str(number))]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        assert process.stdin is not None
        process.stdin.write(given)
        started.append(process)
    for process in started:
        process.communicate(timeout=120)
    for number in range(4):
        assert {name for name in files if (tmp_path / str(number) / name).is_file()} == set(files)
    assert [path.name for path in (cache / "runtime").glob(".*")] == []
    kept_copy(cache)
