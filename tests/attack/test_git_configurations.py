"""Nothing that a repository configures acts when a program's folder is read or planned."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client
from support.attack.cases import attack_count, attack_random
from support.attack.git_configurations import (
    KEYS,
    NAMES,
    add_submodule,
    arm,
    attributes,
    git,
    new_repository,
    some_keys,
)
from support.mcp.agent import Agent
from support.mcp.mcp_client import answer_of

from trainmaster.errors.errors import PlanError
from trainmaster.home.paths import Home
from trainmaster.runs.planning.code_folder import CodeFolder, read_code

pytestmark = pytest.mark.attack
_HOME = Home(Path("/nowhere"))
_LIMIT = 8 << 20


class Trap:
    """A repository, with a submodule, that leaves `mark` wherever a command of it runs."""

    def __init__(self, tmp_path: Path) -> None:
        self.mark = tmp_path / "ran"
        self.program = new_repository(tmp_path / "program")
        self.module = add_submodule(self.program, new_repository(tmp_path / "other"))
        self.command = f"touch {self.mark}"

    def touch_files(self) -> None:
        """Have git read every file: its times differ from the index."""
        for name in ("train.py", "vendor/train.py"):
            path = self.program / name
            path.write_text(path.read_text() + "print(2)\n")

    def read(self) -> CodeFolder:
        found = read_code(self.program, _LIMIT, _HOME)
        assert not self.mark.exists()
        return found


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


def test_a_filter_whose_name_holds_an_equals_sign_is_not_run(trap: Trap) -> None:
    git(trap.program, "config", "filter.a=b.clean", trap.command)
    (trap.program / ".gitattributes").write_text("* filter=a=b\n")
    trap.touch_files()
    assert "+print(2)" in trap.read().diff


def test_a_filter_of_a_submodules_own_configuration_is_not_run(trap: Trap) -> None:
    git(trap.program / "vendor", "config", "filter.own.clean", trap.command)
    (trap.program / "vendor" / ".gitattributes").write_text("* filter=own\n")
    trap.touch_files()
    found = trap.read()
    assert found.dirty
    assert "b/vendor/train.py" in found.diff


def test_a_missing_object_of_a_partial_clone_is_not_fetched(trap: Trap) -> None:
    blob = git(trap.program, "rev-parse", "HEAD:train.py")
    (trap.program / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for key, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", f"file://{trap.program}"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.uploadpack", f"{trap.command};git-upload-pack"),
    ):
        git(trap.program, "config", key, value)
    trap.touch_files()
    found = trap.read()
    assert found.commit == git(trap.program, "rev-parse", "HEAD")
    assert (found.dirty, found.diff) == (None, "")
    assert any("changes since the commit" in line for line in found.left)
    assert "train.py" in [file.name for file in found.files]


@pytest.mark.parametrize("name", NAMES)
def test_every_key_at_once_runs_nothing_under_any_name(trap: Trap, name: str) -> None:
    for git_dir in (trap.program / ".git", trap.module):
        arm(git_dir, trap.command, [(key, name) for key in KEYS])
    for folder in (trap.program, trap.program / "vendor"):
        (folder / ".gitattributes").write_text(attributes(name))
    trap.touch_files()
    assert "+print(2)" in trap.read().diff


@pytest.mark.long
def test_generated_configurations_run_nothing(trap: Trap) -> None:
    numbers = attack_random("git configurations")
    saved = {path: path.read_bytes() for path in trap.program.rglob("config") if path.is_file()}
    for _ in range(attack_count(20)):
        for path, content in saved.items():
            path.write_bytes(content)
        for git_dir in (trap.program / ".git", trap.module):
            if numbers.random() < 0.8:
                arm(git_dir, trap.command, some_keys(numbers, numbers.randint(1, 12)))
        place = trap.program / numbers.choice(("", "vendor")) / ".gitattributes"
        place.write_text(attributes(numbers.choice(NAMES)))
        trap.touch_files()
        assert trap.read().dirty


def test_a_git_in_the_folder_itself_is_not_started(
    trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (trap.program, trap.program / "bin"):
        place.mkdir(exist_ok=True)
        (place / "git").write_text(f"#!/bin/sh\n{trap.command}\n")
        (place / "git").chmod(0o755)
    monkeypatch.chdir(trap.program)
    before = os.environ["PATH"]
    monkeypatch.setenv("PATH", f".:bin:{trap.program}/bin:{trap.program}:{before}")
    assert trap.read().commit


@pytest.mark.parametrize("variable", ["GIT_DIR", "GIT_EXTERNAL_DIFF", "GIT_CONFIG_COUNT"])
def test_variables_of_git_are_not_passed_on(
    trap: Trap, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    trap.touch_files()
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", trap.command)
    monkeypatch.setenv(variable, {"GIT_CONFIG_COUNT": "1"}.get(variable, trap.command))
    assert trap.read().dirty


def test_a_git_file_that_leads_to_another_repository_is_refused(tmp_path: Path) -> None:
    private = new_repository(tmp_path / "private", "KEY = 'of somebody else'\n")
    lure = tmp_path / "lure"
    lure.mkdir()
    (lure / "train.py").write_text("print(1)\n")
    (lure / ".git").write_text(f"gitdir: {private}/.git\n")
    with pytest.raises(PlanError, match="not of this folder"):
        read_code(lure, _LIMIT, _HOME)
    (lure / ".git").unlink()
    (lure / ".git").symlink_to(private / ".git")
    with pytest.raises(PlanError, match="neither a folder nor a file"):
        read_code(lure, _LIMIT, _HOME)


def test_a_git_folder_assembled_of_another_repositorys_parts_shows_none_of_it(
    tmp_path: Path,
) -> None:
    private = new_repository(tmp_path / "private", "KEY = 'of somebody else'\n")
    parts, commit = private / ".git", git(private, "rev-parse", "HEAD")
    for index, names in enumerate((("HEAD",), ("objects",), ("refs",), ("objects", "refs"))):
        lure = new_repository(tmp_path / f"lure-{index}")
        (lure / "train.py").write_text("print(2)\n")
        for name in names:
            place = lure / ".git" / name
            shutil.rmtree(place) if place.is_dir() else place.unlink()
            place.symlink_to(parts / name)
        try:
            found = read_code(lure, _LIMIT, _HOME)
            assert "somebody" not in found.diff
            assert found.commit != commit
        except PlanError as error:
            assert "somebody" not in error.message
    lure = new_repository(tmp_path / "borrower")
    (lure / "train.py").write_text("print(2)\n")
    (lure / ".git" / "objects" / "info" / "alternates").write_text(f"{parts}/objects\n")
    (lure / ".git" / "HEAD").write_text(f"{commit}\n")
    found = read_code(lure, _LIMIT, _HOME)
    assert (found.commit, found.diff) == (commit, "")


@pytest.mark.parametrize("is_packed", [False, True])
def test_links_to_another_repositorys_objects_show_none_of_it(
    tmp_path: Path, is_packed: bool
) -> None:
    private = new_repository(tmp_path / "private", "KEY = 'of somebody else'\n")
    if is_packed:
        git(private, "gc", "-q")
    lure = new_repository(tmp_path / "lure")
    (lure / "train.py").write_text("print(2)\n")
    (lure / ".git" / "HEAD").write_text(git(private, "rev-parse", "HEAD") + "\n")
    objects = private / ".git" / "objects"
    for place in objects.rglob("*"):
        link = lure / ".git" / "objects" / place.relative_to(objects)
        if place.is_dir():
            link.mkdir(exist_ok=True)
        elif not link.exists():
            link.symlink_to(place)
    with pytest.raises(PlanError, match="is not a regular file"):
        read_code(lure, _LIMIT, _HOME)


def test_linked_worktrees_and_their_submodules_are_read(tmp_path: Path) -> None:
    program = new_repository(tmp_path / "program")
    add_submodule(program, new_repository(tmp_path / "other"))
    second = tmp_path / "second"
    git(program, "worktree", "add", "-q", str(second))
    git(second, "submodule", "update", "-q", "--init")
    (second / "train.py").write_text("print(3)\n")
    found = read_code(second, _LIMIT, _HOME)
    assert found.commit == git(second, "rev-parse", "HEAD")
    assert "+print(3)" in found.diff
    assert "vendor/train.py" in [file.name for file in found.files]
    assert read_code(second / "vendor", _LIMIT, _HOME).dirty is False


@pytest.mark.parametrize("options", [("--object-format=sha256",), ()], ids=["sha256", "sha1"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_formats_of_repositories_are_read(
    tmp_path: Path, options: tuple[str, ...], is_packed: bool
) -> None:
    program = tmp_path / "program"
    program.mkdir()
    git(program, "init", "-q", *options)
    for name in ("a.py", "deep/er/b.py", 'od"d\nname.py', "ü.py"):
        (program / name).parent.mkdir(parents=True, exist_ok=True)
        (program / name).write_text("one\n")
    git(program, "add", ".")
    git(program, "commit", "-q", "-m", "one")
    if is_packed:
        git(program, "gc", "-q")
        git(program, "update-index", "--split-index", "--untracked-cache")
    clean = read_code(program, _LIMIT, _HOME)
    assert (clean.dirty, clean.diff) == (False, "")
    assert clean.commit == git(program, "rev-parse", "HEAD")
    assert len(clean.files) == 4
    for name in ('od"d\nname.py', "deep/er/b.py"):
        (program / name).write_text("two\n")
    (program / "a.py").unlink()
    found = read_code(program / "deep", _LIMIT, _HOME)
    assert (found.dirty, [file.name for file in found.files]) == (True, ["er/b.py"])
    assert found.diff == git(program, "diff", "HEAD", "--", "deep") + "\n"
    assert read_code(program, _LIMIT, _HOME).diff == git(program, "diff", "HEAD") + "\n"


def test_a_read_only_server_runs_nothing_of_what_it_plans(
    trap: Trap, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trap.program)
    agent = Agent({"TRAINMASTER_HOME": str(home), "HOME": os.environ["HOME"]})
    for git_dir in (trap.program / ".git", trap.module):
        arm(git_dir, trap.command, [(key, "a=b") for key in KEYS])
    (trap.program / ".gitattributes").write_text(attributes("a=b"))
    trap.touch_files()
    spec = (
        "name: program\nframework: script\nhost: local\n"
        f"script: {{path: {trap.program}, command: [python3, train.py]}}\n"
    )

    async def planning(client: Client) -> None:
        decisions = (await answer_of(client, "plan_run", spec=spec, detail=True))["decisions"]
        assert any("with changes" in str(decision) for decision in decisions)

    agent.session(planning, read_only=True)
    assert not trap.mark.exists()


_TRACED = """
import json, os, sys
from pathlib import Path
started = []
def hook(event, arguments):
    if event == "subprocess.Popen":
        started.append([os.fsdecode(arguments[0]), *map(os.fsdecode, arguments[1][:4])])
    elif event in ("os.exec", "os.posix_spawn", "os.system", "os.fork", "os.forkpty"):
        started.append([event, str(arguments[:1])])
sys.addaudithook(hook)
sys.argv = ["trainmaster", *sys.argv[2:]]
from trainmaster.__main__ import main
from trainmaster.home.paths import Home

_HOME = Home(Path("/nowhere"))
try:
    main()
finally:
    Path(os.environ["STARTED"]).write_text(json.dumps(started))
"""


@pytest.mark.parametrize("host", ["local", "nowhere"])
def test_a_plan_starts_git_and_our_own_interpreter_alone(
    trap: Trap, tmp_path: Path, home: Path, host: str
) -> None:
    for git_dir in (trap.program / ".git", trap.module):
        arm(git_dir, trap.command, [(key, "own") for key in KEYS])
    (trap.program / ".gitattributes").write_text(attributes("own"))
    for name in ("json.py", "trainer_runtime.py", "sitecustomize.py", "git", "ssh", "python3"):
        (trap.program / name).write_text(f"#!/bin/sh\n{trap.command}\n")
        (trap.program / name).chmod(0o755)
    trap.touch_files()
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "name: program\nframework: script\n"
        f"script: {{path: {trap.program}, command: [python3, train.py]}}\nhost: {host}\n"
    )
    environment = {**os.environ, "STARTED": str(tmp_path / "started.json")}
    command = [sys.executable, "-P", "-c", _TRACED, "-", "plan", str(spec), "--json"]
    done = subprocess.run(command, cwd=trap.program, env=environment, capture_output=True)
    started = json.loads((tmp_path / "started.json").read_bytes())
    programs = {os.path.basename(words[0]) for words in started}
    assert not trap.mark.exists()
    assert programs <= {"git", os.path.basename(sys.executable)}
    if host == "local":
        assert done.returncode == 0, done.stdout + done.stderr
        assert "git" in programs
