"""An agent's tools read and send files of the allowed folders only, whatever names them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support.mcp.mcp_client import answer_of, connected, error_of
from support.runs.running_run import CommandLine

from trainmaster.errors.errors import UsageError
from trainmaster.home.paths import Home
from trainmaster.metrics.log_file import log_file, open_log
from trainmaster.settings.policy import Policy, agent_policies
from trainmaster.sync.workspace import open_workspace

pytestmark = pytest.mark.attack

_SECRET = "-----BEGIN OPENSSH PRIVATE KEY----- b3BlbnNzaC1rZXktdjEAAAA"
_SPEC = """\
name: stolen
framework: nanogpt
model: {{n_layer: 1, n_head: 2, d_model: 32}}
data: {{sources: [{{path: "{path}"}}], seq_len: 32}}
batch: {{tokens: 256}}
steps: 20
host: {host}
"""


@pytest.fixture
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home with keys and credentials, beside a project in which the server works."""
    user = tmp_path / "user"
    for name in (".ssh/id_rsa", ".aws/credentials", ".netrc", ".kaggle/kaggle.json", ".env"):
        (user / name).parent.mkdir(parents=True, exist_ok=True)
        (user / name).write_text(f"{_SECRET} {name}\n")
    (user / ".cache" / "huggingface").mkdir(parents=True)
    (user / ".cache" / "huggingface" / "token").write_text(f"hf_{_SECRET}\n")
    monkeypatch.setenv("HOME", str(user))
    (user / "project").mkdir()
    monkeypatch.chdir(user / "project")
    return user


@pytest.fixture
def protected(user_home: Path, tmp_path: Path) -> list[str]:
    """Paths by which an attack would reach what is protected, or lies outside."""
    other = tmp_path / "other-home"
    other.mkdir()
    (other / "control.db").write_bytes(b"")
    (other / "settings.yaml").write_text(f"# {_SECRET}\n")
    (tmp_path / "elsewhere.log").write_text(f"step 1: loss 2.5 {_SECRET}\n")
    project = user_home / "project"
    (project / "link.log").symlink_to(user_home / ".ssh" / "id_rsa")
    (project / "folder").symlink_to(user_home / ".ssh")
    (project / ".env").write_text(f"TOKEN={_SECRET}\n")
    names = (".ssh/id_rsa", ".aws/credentials", ".netrc", ".kaggle/kaggle.json")
    return [
        *(str(user_home / name) for name in names),
        str(user_home / ".cache" / "huggingface" / "token"),
        "../.ssh/id_rsa",
        "link.log",
        "folder/id_rsa",
        "./.env",
        "/proc/self/environ",
        f"/proc/self/root{user_home}/.ssh/id_rsa",
        "/proc/self/cwd/../.ssh/id_rsa",
        "/etc/passwd",
        str(other / "settings.yaml"),
        str(tmp_path / "home" / "settings.yaml"),
        str(tmp_path / "home" / "control.db"),
        str(tmp_path / "elsewhere.log"),
        str(tmp_path / "not-there.log"),
    ]


def calls_of(path: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls by which an agent could have a file read or sent."""
    specs = [_SPEC.format(path=path, host=host) for host in ("debug", "local", "kaggle")]
    model = _SPEC.format(path="corpus", host="local").replace("nanogpt", "hf")
    return [
        ("tail_log", {"run_id": path}),
        ("query_metrics", {"run_id": [path]}),
        ("diagnose", {"run_id": path}),
        ("plot_metrics", {"run_id": [path]}),
        ("plan_run", {"spec": path}),
        *(("plan_run", {"spec": spec}) for spec in specs),
        ("plan_run", {"spec": model, "set": [f"data.tokenizer={os.path.abspath(path)}"]}),
        ("plan_run", {"spec": model, "set": [f"model={{path: {path}}}"]}),
        ("list_offers", {"spec": path, "provider": "runpod"}),
    ]


def on_host(path: str) -> str:
    return f"host:{os.path.normpath(os.path.join(os.getcwd(), path))}"


ACTING = [
    ("launch", lambda path: {"spec": path}),
    ("launch", lambda path: {"spec": _SPEC.format(path=path, host="local")}),
    ("launch", lambda path: {"spec": _SPEC.format(path=on_host(path), host="local")}),
    ("attach", lambda path: {"log": path}),
    ("adopt", lambda path: {"folder": path}),
    ("adopt", lambda path: {"folder": ".", "spec": path}),
]
Arguments = Callable[[str], dict[str, Any]]


def in_session(
    environment: dict[str, str], scenario: Callable[[Client], Awaitable[None]], **options: Any
) -> None:
    async def session() -> None:
        async with connected(environment, **options) as client:
            await scenario(client)

    anyio.run(session)


async def refused(client: Client, tool: str, arguments: dict[str, Any]) -> str:
    error = await error_of(client, tool, **arguments)
    codes = ("POLICY_FILE: ", "LOG_NOT_READABLE: ", "UNSAFE_NAME: ")
    assert error.startswith(codes), (tool, arguments, error)
    assert _SECRET not in error
    return error


@pytest.fixture
def of_user(user_home: Path, tmp_path: Path) -> dict[str, str]:
    (user_home / "project" / "corpus").mkdir()
    (user_home / "project" / "corpus" / "a.txt").write_text("A line of text to learn from.\n" * 400)
    with_settings = Home(tmp_path / "home")
    with_settings.root.mkdir()
    with_settings.settings.write_text(f"# {_SECRET}\n")
    return {"TRAINMASTER_HOME": str(with_settings.root), "HOME": str(user_home)}


@pytest.mark.parametrize("read_only", [False, True], ids=["acting", "read-only"])
def test_no_reading_tool_shows_what_is_protected_or_outside(
    of_user: dict[str, str], protected: list[str], read_only: bool
) -> None:
    async def scenario(client: Client) -> None:
        await answer_of(client, "list_runs")
        for path in protected:
            is_outside = "elsewhere" in path or "not-there" in path
            for tool, arguments in calls_of(path):
                if tool == "plan_run" and is_outside and not read_only:
                    error = await error_of(client, tool, **arguments)
                    codes = ("POLICY_FILE: ", "CONFIRMATION_REQUIRED: ")  # as launch asks
                    assert error.startswith(codes) and _SECRET not in error
                    continue
                error = await refused(client, tool, arguments)
                assert "retryable=no" in error

    in_session(of_user, scenario, read_only=read_only)


@pytest.mark.parametrize(("tool", "arguments"), ACTING)
def test_no_acting_tool_sends_what_is_protected(
    of_user: dict[str, str], protected: list[str], tool: str, arguments: Arguments
) -> None:
    async def scenario(client: Client) -> None:
        await answer_of(client, "list_runs")
        for path in protected:
            error = await error_of(client, tool, **arguments(path))
            codes = ("POLICY_FILE: ", "LOG_NOT_READABLE: ", "UNSAFE_NAME: ")
            assert error.startswith((*codes, "CONFIRMATION_REQUIRED: ")), (path, error)
            assert _SECRET not in error
            is_outside = "elsewhere" in path or "not-there" in path
            assert is_outside or not error.startswith("CONFIRMATION_REQUIRED: "), (path, error)
        assert (await answer_of(client, "list_runs"))["runs"] == []

    in_session(of_user, scenario)


def test_what_lies_in_the_working_folder_or_a_folder_of_the_settings_is_read(
    of_user: dict[str, str], user_home: Path, tmp_path: Path
) -> None:
    (user_home / "project" / "train.log").write_text("step 1: loss 2.5\nstep 2: loss 2.4\n")
    more = tmp_path / "more"
    more.mkdir()
    (more / "train.log").write_text("step 1: loss 2.5\n")
    (more / "id").symlink_to(user_home / ".ssh" / "id_rsa")

    async def scenario(client: Client) -> None:
        assert (await answer_of(client, "tail_log", run_id="train.log"))["lines"]
        assert await answer_of(client, "plan_run", spec=_SPEC.format(path="corpus", host="debug"))
        outside = await error_of(client, "tail_log", run_id=str(more / "train.log"))
        assert outside.startswith("POLICY_FILE: ")
        assert f"folders: [{more}/train.log]" in outside
        settings = Home(tmp_path / "home").settings
        settings.write_text(f"agent: {{folders: [{more}]}}\n")
        assert (await answer_of(client, "tail_log", run_id=str(more / "train.log")))["lines"]
        await refused(client, "tail_log", {"run_id": str(more / "id")})

    in_session(of_user, scenario)


def test_a_link_within_a_model_that_leads_outside_is_not_sent(
    of_user: dict[str, str], user_home: Path
) -> None:
    model = user_home / "project" / "model"
    model.mkdir()
    (model / "config.json").symlink_to(user_home / ".aws" / "credentials")
    spec = _SPEC.format(path="corpus", host="local").replace("nanogpt", "hf")

    async def scenario(client: Client) -> None:
        for tool in ("plan_run", "launch"):
            await refused(client, tool, {"spec": spec, "set": ["model={path: model}"]})

    in_session(of_user, scenario)


def test_a_link_put_in_the_way_of_an_opened_log_is_noticed(
    of_user: dict[str, str], user_home: Path
) -> None:
    log = user_home / "project" / "train.log"
    log.write_text("step 1: loss 2.5\n")
    with open_workspace(of_user) as workspace:
        workspace.policy_now = agent_policies(workspace.home, of_user, reads_only=True)
        checked = log_file(workspace, "train.log")
        assert checked is not None
        open_log(checked).close()
        log.unlink()
        log.symlink_to(user_home / ".ssh" / "id_rsa")
        with pytest.raises(UsageError, match="link"):
            open_log(checked)


def test_a_server_that_was_started_in_the_users_home_reads_none_of_it(
    of_user: dict[str, str], user_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (user_home / "notes.log").write_text("private\n")
    monkeypatch.chdir(user_home)

    async def scenario(client: Client) -> None:
        await refused(client, "tail_log", {"run_id": "notes.log"})
        await refused(client, "plan_run", {"spec": _SPEC.format(path=".", host="debug")})
        monkeypatch.chdir("/")
        await refused(client, "tail_log", {"run_id": str(user_home / "notes.log")})

    in_session(of_user, scenario)


def test_a_person_at_a_terminal_is_not_bound(
    of_user: dict[str, str], user_home: Path, command: CommandLine
) -> None:
    (user_home / "notes.log").write_text("step 1: loss 2.5\n")
    assert command("logs", str(user_home / "notes.log"))["lines"] == ["step 1: loss 2.5"]
    with open_workspace(of_user) as workspace:
        assert workspace.policy == Policy()
