"""What no run uses leaves the cache; what any run names, holds or runs from stays."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import kill, wait_until

from trainer_runtime.host.answer.gc import collect
from trainer_runtime.host.prepare.cache_roots import register

PROJECT = Path(__file__).resolve().parents[3]
USED, UNUSED = "a" * 32, "b" * 32
_DAY_S = 86400.0


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with a used and an unused entry of each kind."""
    for kind in ("data", "venvs", "sources", "runtime"):
        for name in (USED, UNUSED):
            fill(tmp_path / "cache" / kind / name)
            age(tmp_path / "cache" / kind / name)
    run = tmp_path / "runs" / "gpt-abc234"
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({"data": {"fingerprint": USED}}))
    return tmp_path / "cache"


def fill(folder: Path) -> None:
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "part").write_bytes(b"12345")


def age(entry: Path, age_s: float = 2 * _DAY_S) -> None:
    then = time.time() - age_s
    for path in (entry, *entry.rglob("*")):
        os.utime(path, (then, then))


def gc(cache: Path, named: str = "", *, dry_run: bool = False) -> dict[str, Any]:
    return collect(cache, cache.parent / "runs", named, dry_run=dry_run).to_dict()


def names(entries: list[dict[str, Any]]) -> set[str]:
    return {f"{entry['kind']}/{entry['name']}" for entry in entries}


def test_what_no_run_names_is_removed_and_what_one_names_stays(cache: Path) -> None:
    answer = gc(cache)
    kinds = ("data", "venvs", "sources", "runtime")
    assert names(answer["removed"]) == {f"{kind}/{UNUSED}" for kind in kinds}
    assert {entry["size_bytes"] for entry in answer["removed"]} == {5}
    assert {entry["reason"] for entry in answer["kept"]} == {"run gpt-abc234"}
    for kind in kinds:
        assert [path.name for path in (cache / kind).iterdir() if path.is_dir()] == [USED]


def test_what_containers_left_in_their_home_goes_after_a_week_without_one(cache: Path) -> None:
    home = cache / "home"
    for name, days in ((".triton", 8), (".cache", 6)):
        fill(home / name)
        age(home / name, days * _DAY_S)
    inside = ["sh", "-c", "echo ready; read line"]
    with subprocess.Popen(
        inside,
        env={**os.environ, "HOME": str(home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as trainer:
        assert trainer.stdout is not None and trainer.stdout.readline() == b"ready\n"
        reasons = {row["name"]: row["reason"] for row in gc(cache)["kept"]}
        assert reasons[".triton"] == "a container runs"
        trainer.communicate()
    assert "home/.triton" in names(gc(cache)["removed"])
    assert [path.name for path in home.iterdir()] == [".cache"]


def test_a_dry_run_reports_the_same_and_changes_nothing(cache: Path) -> None:
    before = sorted(cache.rglob("*"))
    planned = gc(cache, dry_run=True)
    assert sorted(cache.rglob("*")) == before
    assert names(planned["removed"]) == names(gc(cache)["removed"])


def test_what_the_operators_side_names_stays(cache: Path) -> None:
    answer = gc(cache, json.dumps({"fingerprint": UNUSED}))
    assert answer["removed"] == []
    assert "a run that is on its way" in {entry["reason"] for entry in answer["kept"]}


def test_what_a_run_of_another_root_names_stays(cache: Path, tmp_path: Path) -> None:
    run = tmp_path / "another root" / "runs" / "gpt-xyz234"
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({"data": {"fingerprint": UNUSED}}))
    for _ in range(2):
        register(cache, run.parent)
    assert {"run gpt-abc234", f"run {run}"} == {row["reason"] for row in gc(cache)["kept"]}
    shutil.rmtree(run)
    assert f"data/{UNUSED}" in names(gc(cache)["removed"])


def test_nothing_goes_where_another_root_can_not_be_read(cache: Path, tmp_path: Path) -> None:
    runs = tmp_path / "another root" / "runs"
    runs.mkdir(parents=True)
    register(cache, runs)
    runs.chmod(0)
    unprivileged = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--"]
    command = [sys.executable, "-m", "trainer_runtime", "gc", str(cache)]
    done = subprocess.run(
        [*(unprivileged if os.geteuid() == 0 else []), *command, str(cache.parent / "runs")],
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["removed"] == []
    assert {row["reason"] for row in answer["kept"]} == {
        f"{runs} may not be read: a run there may use it"
    }


def test_a_link_from_a_run_into_the_cache_counts(cache: Path) -> None:
    (cache.parent / "runs" / "gpt-abc234" / "venv").symlink_to(cache / "venvs" / UNUSED)
    assert f"venvs/{UNUSED}" in names(gc(cache)["kept"])


def test_an_attempts_configuration_counts(cache: Path) -> None:
    attempt = cache.parent / "runs" / "gpt-abc234" / "attempts" / "2"
    attempt.mkdir(parents=True)
    (attempt / "config.json").write_text(json.dumps({"python": f"{cache}/venvs/{UNUSED}/bin"}))
    assert f"venvs/{UNUSED}" in names(gc(cache)["kept"])


def test_a_plain_name_counts_only_behind_its_kind(cache: Path) -> None:
    for name in ("corpus", "corpus2"):
        fill(cache / "sources" / name)
    config = cache.parent / "runs" / "gpt-abc234" / "config.json"
    config.write_text(json.dumps({"name": "corpus", "path": f"{cache}/sources/corpus2"}))
    removed = names(gc(cache)["removed"])
    assert "sources/corpus" in removed
    assert "sources/corpus2" not in removed


@pytest.mark.parametrize(
    ("kind", "lock"),
    [
        ("data", f"{UNUSED}.lock"),
        ("data", f".{UNUSED}.receiving/lock"),
        ("venvs", f"{UNUSED}.lock"),
        ("sources", f".{UNUSED}.receiving/lock"),
    ],
)
def test_an_entry_whose_lock_is_held_stays(cache: Path, kind: str, lock: str) -> None:
    path = cache / kind / lock
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        answer = gc(cache)
        reasons = {f"{row['kind']}/{row['name']}": row["reason"] for row in answer["kept"]}
        assert reasons[f"{kind}/{UNUSED}"] == "its lock is held"
    assert f"{kind}/{UNUSED}" in names(gc(cache)["removed"])


@pytest.mark.parametrize("how", ["works in it", "has a file of it mapped"])
def test_what_a_process_uses_stays_until_it_ends(cache: Path, how: str) -> None:
    entry = cache / "data" / UNUSED
    script = (
        "import mmap, sys\n"
        "file = open(sys.argv[1], 'rb')\n"
        "kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "print('ready', flush=True); sys.stdin.read()\n"
    )
    # Relative, so that its command line does not name the cache.
    inside = how == "works in it"
    folder, part = (entry, "sub/part") if inside else (cache, f"data/{UNUSED}/sub/part")
    with subprocess.Popen(
        [sys.executable, "-c", script, part],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as user:
        try:
            assert user.stdout is not None
            assert user.stdout.readline() == b"ready\n"
            reasons = {row["name"]: row["reason"] for row in gc(cache)["kept"]}
            assert reasons[UNUSED] == "a process uses it"
        finally:
            kill(user.pid)
    wait_until(lambda: f"data/{UNUSED}" in names(gc(cache)["removed"]), "its removal")


def test_leftovers_go_after_a_day(cache: Path) -> None:
    for name in (".new.receiving", ".old.receiving", ".building-x-7", f".gone-{UNUSED}"):
        fill(cache / "sources" / name)
    age(cache / "sources" / ".old.receiving")
    age(cache / "sources" / ".building-x-7")
    removed = names(gc(cache)["removed"])
    assert {"sources/.old.receiving", "sources/.building-x-7"} <= removed
    assert "sources/.new.receiving" not in removed
    assert f"sources/.gone-{UNUSED}" not in removed


def test_of_runs_only_what_was_never_placed_goes(cache: Path) -> None:
    runs = cache.parent / "runs"
    for name in (".gpt-new234.receiving", ".gpt-old234.receiving", "gpt-old234"):
        fill(runs / name)
    for name in (".gpt-old234.receiving", "gpt-old234"):
        age(runs / name)
    assert "runs/.gpt-old234.receiving" in names(gc(cache)["removed"])
    assert {path.name for path in runs.iterdir()} == {
        "gpt-abc234",
        "gpt-old234",
        ".gpt-new234.receiving",
    }


@pytest.mark.parametrize("kind", ["runtime", "venvs"])
def test_what_has_just_come_and_may_be_used_in_a_moment_stays(cache: Path, kind: str) -> None:
    fill(cache / kind / ("c" * 16))
    assert f"{kind}/{'c' * 16}" in names(gc(cache)["kept"])


def test_the_locks_leave_nothing_that_a_receiver_would_take_for_its_own(cache: Path) -> None:
    gc(cache)
    assert [path.name for path in (cache / "sources").iterdir()] == [USED]


def test_a_receiver_and_a_removal_of_the_same_entry_take_turns(cache: Path) -> None:
    destination = cache / "sources" / UNUSED
    header = {
        "destination": str(destination),
        "whole": False,
        "mark": False,
        "files": [["new", 3, None, 0o644, None]],
    }
    data = json.dumps(header).encode()
    receiver = PROJECT / "trainer_runtime" / "host" / "answer" / "receive.py"
    with subprocess.Popen(
        [sys.executable, str(receiver)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as receiving:
        assert receiving.stdin is not None
        assert receiving.stdout is not None
        receiving.stdin.write(struct.pack(">cI", b"H", len(data)) + data)
        receiving.stdin.flush()
        assert "need" in json.loads(receiving.stdout.readline())
        reasons = {f"{row['kind']}/{row['name']}": row["reason"] for row in gc(cache)["kept"]}
        assert reasons[f"sources/{UNUSED}"] == "its lock is held"
        receiving.stdin.close()
    assert f"sources/{UNUSED}" in names(gc(cache)["removed"])


def test_a_link_in_the_cache_is_taken_away_and_not_followed(cache: Path, tmp_path: Path) -> None:
    fill(tmp_path / "elsewhere")
    (cache / "data" / "link").symlink_to(tmp_path / "elsewhere")
    assert "data/link" in names(gc(cache)["removed"])
    assert (tmp_path / "elsewhere" / "sub" / "part").exists()


def test_secrets_are_not_read(cache: Path) -> None:
    (cache.parent / "runs" / "gpt-abc234" / ".secrets.json").write_text(f'{{"KEY": "{UNUSED}"}}')
    assert f"data/{UNUSED}" in names(gc(cache)["removed"])


def test_a_cache_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert gc(tmp_path / "cache") == {"removed": [], "kept": []}


def test_the_command_answers_with_json_and_takes_names_from_its_input(cache: Path) -> None:
    command = [sys.executable, "-m", "trainer_runtime", "gc", str(cache)]
    done = subprocess.run(
        [*command, str(cache.parent / "runs"), "--dry-run", "--named"],
        cwd=PROJECT,
        input=UNUSED,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["removed"] == []
