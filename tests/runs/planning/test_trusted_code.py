"""Code that agents' specs bring to this machine, and what exactly an approval is for."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from trainmaster.errors.confirmation import Quote
from trainmaster.errors.errors import PlanError, PolicyError, SpecError
from trainmaster.plan.spec import TrainingSpec, load_spec, read_attached
from trainmaster.runs.attach.attach import allow_log
from trainmaster.runs.planning.spec_policy import (
    allow,
    beyond_policy,
    load_allowed_spec,
    places_of,
)
from trainmaster.runs.planning.trusted_code import code_at, code_of, trust, untrusted_code
from trainmaster.runs.resume.next_attempt import ResumeRequest
from trainmaster.runs.resume.resume import allow_resume
from trainmaster.settings.policy import agent_policies
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_SPEC = """\
name: small
framework: nanogpt
model: {n_layer: 1, n_head: 2, d_model: 32}
data: {sources: [{path: corpus}], seq_len: 32}
batch: {tokens: 256}
steps: 60
host: local
"""


@pytest.fixture
def project(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent's working folder, in whose limits the workspace is used."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    environment = {"HOME": str(tmp_path)}
    workspace.policy_now = agent_policies(workspace.home, environment, reads_only=False)
    return folder


def _spec(more: str = "", data: object = "corpus") -> TrainingSpec:
    return load_spec(_SPEC.replace("path: corpus", f"path: {data}") + more)


def _with_python(path: object) -> TrainingSpec:
    return _spec(f"environment: {{python: {path}}}\n")


class _NotNow(Exception):
    """Ends a request with its question."""


class _Quotes:
    def __init__(self) -> None:
        self.asked: list[Quote] = []

    async def confirm(self, quote: Quote) -> str:
        self.asked.append(quote)
        raise _NotNow


def _launched(workspace: Workspace, spec: TrainingSpec) -> Quote:
    """What an agent's launch asks."""
    quotes = _Quotes()
    with pytest.raises(_NotNow):
        anyio.run(allow, workspace, beyond_policy(workspace, spec), "launch", "it", quotes.confirm)
    return quotes.asked[0]


def _resumed(
    workspace: Workspace,
    spec: TrainingSpec,
    host: str = "local",
    start: str | None = None,
    sets: Sequence[str] = (),
    places: dict[str, str] | None = None,
    abandon: bool = False,
) -> list[Quote]:
    """What an agent's resume of a person's run asks; `places`: where its paths led at its launch,
    None for where they lead now."""
    text = json.dumps(spec.model_dump(mode="json", exclude_unset=True))
    plan = {"places": places_of(spec)} if places is None else {"places": places}
    run = SimpleNamespace(run_id="small-1", host="local", spec=text, plan=plan)
    view = cast(RunView, SimpleNamespace(run=run))
    quotes = _Quotes()
    try:
        asked = ResumeRequest(start, sets, None, quotes.confirm, abandon=abandon)
        anyio.run(allow_resume, workspace, view, host, asked)
    except _NotNow:
        pass
    return quotes.asked


def test_a_link_to_the_systems_folder_is_not_the_systems(
    workspace: Workspace, project: Path
) -> None:
    (project / "v").mkdir()
    (project / "v" / "bin").symlink_to(Path(sys.executable).parent)
    (project / "v" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    assert untrusted_code(workspace, _with_python(sys.executable)) == []
    spec = _with_python(project / "v" / "bin" / Path(sys.executable).name)
    assert [code.field for code in untrusted_code(workspace, spec)] == ["environment.python"]


def test_an_environments_interpreter_is_trusted_with_its_pyvenv_cfg_and_folder(
    workspace: Workspace, project: Path
) -> None:
    for name in ("one", "two"):
        (project / name).mkdir()
        (project / name / "bin").symlink_to("/bin")
        (project / name / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (project / "current").symlink_to("one")
    spec = _with_python(project / "current" / "bin" / "sh")
    (code,) = untrusted_code(workspace, spec)
    trust(workspace, code, "test")
    assert untrusted_code(workspace, spec) == []
    assert untrusted_code(workspace, _with_python(project / "two" / "bin" / "sh")) != []
    (project / "one" / "pyvenv.cfg").write_text("home = /elsewhere\n")
    assert untrusted_code(workspace, spec) != []


def test_an_approval_is_for_the_whole_request(workspace: Workspace, project: Path) -> None:
    script = project / "setup.sh"
    script.write_text("echo one\n")
    outside = project.parent / "outside"
    specs = [
        _spec(data=outside),
        _spec(data=outside).model_copy(update={"steps": 61}),
        _spec("environment: {setup: setup.sh}\n", outside),
        *(_spec(f"env: {{LD_PRELOAD: /{'lib/' * 40}{end}.so}}\n") for end in ("a", "b")),
    ]
    quotes = [_launched(workspace, spec) for spec in specs]
    assert [_launched(workspace, spec) for spec in specs] == quotes
    script.write_text("echo another\n")
    changed = _launched(workspace, specs[2])
    assert len({quote.asked for quote in (*quotes, changed)}) == len(specs) + 1
    assert "(165 characters)" in quotes[-1].text


def test_a_changed_script_for_another_host_is_another_request(
    workspace: Workspace, project: Path
) -> None:
    (project / "setup.sh").write_text("echo one\n")
    spec = _spec("environment: {setup: setup.sh}\n", project.parent / "outside")
    spec = spec.model_copy(update={"host": "gpu1"})
    before = _launched(workspace, spec)
    (project / "setup.sh").write_text("echo another\n")
    assert _launched(workspace, spec).asked != before.asked


def test_a_resume_asks_about_code_that_changed_since_the_launch(
    workspace: Workspace, project: Path
) -> None:
    (project / "setup.sh").write_text("echo one\n")
    spec = _spec("environment: {setup: setup.sh}\n")
    (code,) = untrusted_code(workspace, spec)
    trust(workspace, code, "test")
    assert _resumed(workspace, spec) == []
    (project / "setup.sh").write_text("echo another\n")
    (first,) = _resumed(workspace, spec)
    assert "setup.sh" in first.text
    assert _resumed(workspace, spec) == [first]
    (other,) = _resumed(workspace, spec, sets=["steps=80"])
    assert other.asked != first.asked


def test_files_of_a_run_are_asked_about_where_it_moves_to_another_host(
    workspace: Workspace, project: Path
) -> None:
    outside = project.parent / "outside"
    spec = _spec(data=outside)
    assert _resumed(workspace, spec) == []
    (quote,) = _resumed(workspace, spec, host="gpu1")
    assert f"read and send {outside}" in quote.text


def test_an_approved_attach_is_for_one_log_with_one_set_of_options(
    workspace: Workspace, project: Path
) -> None:
    long = project.parent / "/".join(["folder" * 20] * 4)
    asked = set()
    for path, options in (("a.log", "1"), ("b.log", "1"), ("a.log", "2"), ("a.log", "1")):
        quotes = _Quotes()
        (long / path).parent.mkdir(parents=True, exist_ok=True)
        (long / path).write_text("step 1: loss 2.5\n")
        with pytest.raises(_NotNow):
            anyio.run(allow_log, workspace, "local", str(long / path), options, quotes.confirm)
        asked.add(quotes.asked[0].asked)
    assert len(asked) == 3


def test_a_link_that_leads_elsewhere_since_the_launch_asks_on_resume(
    workspace: Workspace, project: Path
) -> None:
    for name in ("one", "two"):
        (project.parent / name).mkdir()
    link = project / "corpus"
    link.symlink_to(project.parent / "one")
    spec = _spec(data=link)
    launched = places_of(spec)
    assert _resumed(workspace, spec, places=launched) == []
    link.unlink()
    link.symlink_to(project.parent / "two")
    (quote,) = _resumed(workspace, spec, places=launched)
    assert f"read and send {project.parent / 'two'}" in quote.text


def test_giving_up_the_old_host_is_part_of_what_is_approved(
    workspace: Workspace, project: Path
) -> None:
    spec = _spec(data=project.parent / "outside")
    asked = [
        _resumed(workspace, spec, host="gpu1", abandon=abandon)[0].asked
        for abandon in (False, True, False)
    ]
    assert asked[0] == asked[2] != asked[1]


def test_code_that_changes_between_the_approval_and_the_start_is_refused(
    workspace: Workspace, project: Path
) -> None:
    script = project / "setup.sh"
    script.write_text("echo one\n")
    spec = _spec("environment: {setup: setup.sh}\n")
    for host in ("local", "gpu1"):
        beyond = beyond_policy(workspace, spec.model_copy(update={"host": host}))
        beyond.refuse_changed({"environment.setup": "echo one\n"})
        with pytest.raises(PolicyError) as caught:
            beyond.refuse_changed({"environment.setup": "echo another\n"})
        assert (caught.value.code, caught.value.field) == ("POLICY_PROGRAM", "environment.setup")
        script.write_text("echo another\n")
        with pytest.raises(PolicyError):
            beyond.refuse_changed()
        script.write_text("echo one\n")


@pytest.mark.attack
def test_a_spec_that_is_swapped_for_a_link_or_a_pipe_is_not_read(
    workspace: Workspace, project: Path
) -> None:
    place, secret = project / "spec.yaml", project.parent / "secret.yaml"
    secret.write_text(_SPEC)
    place.write_text(_SPEC)
    assert load_allowed_spec(workspace, str(place), ()).name == "small"
    place.unlink()
    place.symlink_to(secret)
    with pytest.raises(SpecError, match="replaced by a link"):
        load_spec(place, real=place)
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(SpecError, match="not a file"):
        load_allowed_spec(workspace, str(place), ())
    with pytest.raises(SpecError, match="not a regular file"):
        read_attached(_spec("environment: {setup: spec.yaml}\n"))
    assert code_at("environment.setup", place, workspace.home) is None


def test_a_program_is_code_by_its_files_and_by_its_command(
    workspace: Workspace, project: Path
) -> None:
    (project / "train.py").write_text("print(1)\n")
    text = "name: program\nframework: script\nscript: {path: ., command: [python3, train.py]}\n"

    def keys(*sets: str) -> dict[str, str]:
        spec = load_spec(text, sets)
        return {code.field: code.key for code in code_of(spec, workspace.home)}

    before = keys()
    assert set(before) == {"script.path", "script.command"}
    changed = keys("script.command=[python3, other.py]")
    assert changed["script.command"] != before["script.command"]
    (project / "train.py").write_text("print(2)\n")
    assert keys()["script.path"] != before["script.path"]
    assert keys()["script.command"] == before["script.command"]


@pytest.mark.attack
def test_a_program_that_can_not_be_known_by_its_digest_is_refused_and_not_said_outside(
    workspace: Workspace, project: Path, tmp_path: Path
) -> None:
    text = "name: program\nframework: script\nscript: {path: host:%s, command: [python3, a.py]}\n"
    outside = tmp_path / "outside"
    for folder in (project, outside):
        folder.mkdir(exist_ok=True)
        (folder / "weights.bin").write_text("version https://git-lfs.github.com/spec/v1\noid x\n")
    with pytest.raises(PlanError, match=r"weights.bin is a pointer"):
        beyond_policy(workspace, load_spec(text % project))
    beyond = beyond_policy(workspace, load_spec(text % outside))
    assert [error.code for error in beyond.errors] == ["POLICY_FILE"]
    with pytest.raises(PlanError):
        beyond.refuse_changed()


def test_a_program_runs_here_for_an_agent_once_a_person_has_trusted_it(
    workspace: Workspace, project: Path
) -> None:
    (project / "train.py").write_text("print(1)\n")
    text = "name: program\nframework: script\nscript: {path: ., command: [python3, train.py]}\n"
    spec = load_spec(text)
    found = untrusted_code(workspace, spec)
    assert [code.field for code in found] == ["script.path", "script.command"]
    for code in found:
        trust(workspace, code, "terminal")
    assert untrusted_code(workspace, spec) == []
    (project / "train.py").write_text("print(2)\n")
    assert [code.field for code in untrusted_code(workspace, spec)] == ["script.path"]


def test_a_resume_with_another_command_asks_about_it(workspace: Workspace, project: Path) -> None:
    (project / "train.py").write_text("print(1)\n")
    spec = load_spec(
        "name: program\nframework: script\nscript: {path: ., command: [python3, train.py]}\n"
    )
    for code in untrusted_code(workspace, spec):
        trust(workspace, code, "terminal")
    assert _resumed(workspace, spec) == []
    (asked,) = _resumed(workspace, spec, sets=["script.command=[python3, train.py, --batch=1]"])
    assert "script.command" in asked.text
