"""An agent's hosts, secrets, addresses and code: what is refused, what asks, what asks nothing."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp import Client
from support.mcp.agent import Agent
from support.mcp.mcp_client import answer_of, error_of, wait_for
from support.runs.running_run import CommandLine, kill_processes

from trainmaster.plan.spec import load_spec
from trainmaster.runs.planning.spec_policy import beyond_policy
from trainmaster.settings.policy import agent_policies
from trainmaster.store.host_record import HostRecord
from trainmaster.sync.workspace import open_workspace

pytestmark = pytest.mark.attack

_ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
_SPEC = """\
name: small
framework: nanogpt
model: {n_layer: 1, n_head: 2, d_model: 32}
data: {sources: [{path: corpus}], seq_len: 32}
batch: {tokens: 256}
steps: 60
eval: {every_steps: 20, batches: 2}
checkpoint: {every: 20}
env: {TRAINMASTER_STEP_S: "0.001"}
host: debug
"""


@pytest.fixture
def agent(environment: dict[str, str], corpus: Path) -> Iterator[Agent]:
    yield Agent(environment)
    kill_processes(Path(environment["TRAINMASTER_HOME"]) / "local")


@contextmanager
def listening() -> Iterator[tuple[int, Callable[[], bool]]]:
    """A port, and whether anybody connected to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)

        def was_reached() -> bool:
            try:
                server.accept()[0].close()
            except BlockingIOError:
                return False
            return True

        yield server.getsockname()[1], was_reached


@pytest.mark.slow
def test_an_hour_of_ordinary_work_asks_nothing(agent: Agent) -> None:
    async def scenario(client: Client) -> None:
        await answer_of(client, "plan_run", spec=_SPEC)
        run_id = (await answer_of(client, "launch", spec=_SPEC))["run_id"]
        await wait_for(client, run_id, "end")
        await answer_of(client, "diagnose", run_id=run_id)
        await answer_of(client, "tail_log", run_id=run_id)
        await answer_of(client, "query_metrics", run_id=[run_id])
        await answer_of(client, "fetch_files", run_id=run_id, pattern="*.md")
        await answer_of(client, "resume", run_id=run_id, set=["steps=80"])
        await wait_for(client, run_id, "end")
        assert (await answer_of(client, "get_run", run_id=run_id))["step"] == 80

    agent.session(scenario, says="decline")
    assert agent.asked == []


@pytest.mark.slow
def test_a_resume_before_verified_checkpoints_asks(agent: Agent) -> None:
    async def scenario(client: Client) -> None:
        run_id = (await answer_of(client, "launch", spec=_SPEC))["run_id"]
        await wait_for(client, run_id, "end")
        for start in ("scratch", "20"):
            error = await error_of(client, "resume", run_id=run_id, start=start)
            assert error.startswith("CONFIRMATION_REQUIRED: ")
            assert "verified checkpoints" in error and " approve q-" in error
        assert (await answer_of(client, "get_run", run_id=run_id))["state"] == "completed"

    agent.session(scenario)


@pytest.mark.slow
@_ERAS
def test_a_folder_outside_is_sent_only_with_an_approval(
    agent: Agent, tmp_path_factory: pytest.TempPathFactory, era: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "text.txt").write_text("A line of text to learn from.\n" * 400)
    spec = _SPEC.replace("path: corpus", f"path: {outside}")

    async def refused(client: Client) -> None:
        error = await error_of(client, "plan_run", spec=spec)
        assert error.startswith("POLICY_FILE: ") and "data.sources" not in error.split("Fix")[0]

    async def declined(client: Client) -> None:
        error = await error_of(client, "launch", spec=spec)
        assert error.startswith("CONFIRMATION_DECLINED: ")
        assert (await answer_of(client, "list_runs"))["runs"] == []

    async def agreed(client: Client) -> None:
        run_id = (await answer_of(client, "launch", spec=spec))["run_id"]
        await wait_for(client, run_id, "end")

    async def nobody_asked(client: Client) -> None:
        for tool in ("plan_run", "launch"):
            error = await error_of(client, tool, spec=spec)
            assert error.startswith("CONFIRMATION_REQUIRED: ") and f"send {outside}" in error

    agent.session(nobody_asked, era)
    agent.session(refused, era, read_only=True, says="accept")
    assert agent.asked == []

    async def planned(client: Client) -> None:
        plan = await answer_of(client, "plan_run", spec=spec)
        assert plan["next_step"].startswith("Launch it: ")

    agent.session(planned, era, says="accept")
    assert len(agent.asked) == 1 and agent.asked[0].startswith("Plan ")
    assert f"read and send {outside}" in agent.asked.pop()
    agent.session(declined, era, says="decline")
    agent.session(agreed, era, says="accept")
    (question,) = set(agent.asked)
    assert f"read and send {outside}" in question


@pytest.mark.slow
def test_without_forms_an_approval_in_a_terminal_counts_once(
    agent: Agent, tmp_path_factory: pytest.TempPathFactory, command: CommandLine
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "text.txt").write_text("A line of text to learn from.\n" * 400)
    spec = _SPEC.replace("path: corpus", f"path: {outside}")

    async def scenario(client: Client) -> None:
        error = await error_of(client, "launch", spec=spec)
        (approval,) = re.findall(r" approve (q-\w+)", error)
        agent_approves(approval)
        run_id = (await answer_of(client, "launch", spec=spec))["run_id"]
        await wait_for(client, run_id, "end")
        assert (await error_of(client, "launch", spec=spec)).startswith("CONFIRMATION_REQUIRED: ")

    def agent_approves(approval: str) -> None:
        answer = command._by_process("approve", approval, "--yes", "--json")
        assert answer[0] == 0, answer

    agent.session(scenario)


def test_an_interpreter_of_the_spec_runs_only_once_it_is_trusted(
    agent: Agent, tmp_path: Path, command: CommandLine
) -> None:
    marker, python = tmp_path / "ran", tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho >> '{marker}'\nexit 1\n")
    python.chmod(0o755)
    spec = _SPEC.replace("host: debug", f"host: local\nenvironment: {{python: {python}}}")
    spec = spec.replace('env: {TRAINMASTER_STEP_S: "0.001"}\n', "")

    async def planning(client: Client) -> None:
        warnings = (await answer_of(client, "plan_run", spec=spec))["warnings"]
        assert any("was not run" in warning for warning in warnings)

    async def acting(client: Client) -> None:
        await planning(client)
        error = await error_of(client, "launch", spec=spec)
        assert error.startswith("CONFIRMATION_REQUIRED: ") and str(python) in error

    agent.session(planning, read_only=True)
    agent.session(acting)
    assert not marker.exists()
    assert command("trust", str(tmp_path / ".venv"), "--yes")["path"] == str(python)

    async def trusted(client: Client) -> None:
        assert (await error_of(client, "plan_run", spec=spec)).startswith("ENVIRONMENT_UNUSABLE")

    agent.session(trusted)
    assert marker.exists()
    marker.unlink()
    python.write_text(f"#!/bin/sh\necho changed >> {marker}\nexit 1\n")
    agent.session(planning)
    assert not marker.exists()


@pytest.mark.parametrize("python", ["rm", "./python3", "touch"])
def test_a_program_on_the_path_is_no_interpreter(agent: Agent, tmp_path: Path, python: str) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\ntouch ran\n")
    (tmp_path / "python3").chmod(0o755)
    spec = _SPEC.replace("host: debug", f"host: local\nenvironment: {{python: {python}}}")

    async def scenario(client: Client) -> None:
        warnings = (await answer_of(client, "plan_run", spec=spec))["warnings"]
        assert any("was not run" in warning for warning in warnings)

    agent.session(scenario, read_only=True)
    assert not (tmp_path / "ran").exists()


def test_code_that_a_spec_brings_here_asks(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "setup.sh").write_text("touch ran\n")
    spec = _SPEC.replace("host: debug", "host: local").replace("TRAINMASTER_STEP_S", "PYTHONPATH")
    spec += "environment: {setup: setup.sh}\n"

    async def scenario(client: Client) -> None:
        error = await error_of(client, "launch", spec=spec)
        assert error.startswith("CONFIRMATION_REQUIRED: ")
        assert str(tmp_path / "setup.sh") in error and "PYTHONPATH" in error

    agent.session(scenario)


def test_variables_that_are_not_listed_ask_on_this_machine(agent: Agent) -> None:
    plain = _SPEC.replace("host: debug", "host: local")
    variables = {
        "PYTHONWARNINGS": "all:0:antigravity.x:0:0",
        "BROWSER": "/bin/sh -c id",
        "NCCL_NET_PLUGIN": "x.so",
        "OMP_NUM_THREADS": "1",
        "NCCL_IB_DISABLE": "1",
        "HF_ENDPOINT": "https://huggingface.co",
    }
    with open_workspace(agent.environment) as workspace:
        workspace.policy_now = agent_policies(agent.home, agent.environment, reads_only=False)
        spec = load_spec(plain, [f"env.{name}={value}" for name, value in variables.items()])
        beyond = beyond_policy(workspace, spec)
        asked = [code.field for code in beyond.code]
        assert asked == ["env.PYTHONWARNINGS", "env.BROWSER", "env.NCCL_NET_PLUGIN"]
        assert not beyond.errors
        elsewhere = load_spec(plain, ["host=debug", "env.BROWSER=/bin/sh"])
        assert not beyond_policy(workspace, elsewhere).code


def test_only_allowed_hosts_are_launched_on_or_attached_to(agent: Agent) -> None:
    agent.settings("agent: {hosts: [local]}")
    with listening() as (port, was_reached):
        with open_workspace(agent.environment) as workspace:
            workspace.control.put_host(HostRecord("gpu1", "127.0.0.1", port=port), 1.0)

        async def scenario(client: Client) -> None:
            for tool, arguments in (
                ("plan_run", {"spec": _SPEC, "host": "gpu1"}),
                ("launch", {"spec": _SPEC, "host": "gpu1"}),
                ("attach", {"log": "/data/train.log", "host": "gpu1"}),
            ):
                error = await error_of(client, tool, **arguments)
                assert error.startswith("CONFIRMATION_REQUIRED: ") and "gpu1" in error
            stolen = await error_of(client, "attach", log="/root/.ssh/id_rsa", host="gpu1")
            assert stolen.startswith("POLICY_FILE: ")

        async def reading(client: Client) -> None:
            error = await error_of(client, "plan_run", spec=_SPEC, host="gpu1")
            assert error.startswith("POLICY_HOST: ") and "agent: {hosts: [gpu1, local]}" in error

        agent.session(scenario)
        agent.session(reading, read_only=True)
        assert not was_reached()


def test_every_host_of_a_training_on_several_has_to_be_allowed(agent: Agent) -> None:
    agent.settings("agent: {hosts: [local, gpu1]}")
    spec = _SPEC.replace("nanogpt", "hf").replace("host: debug", "host: [gpu1, gpu2]")
    with open_workspace(agent.environment) as workspace:
        workspace.policy_now = agent_policies(agent.home, agent.environment, reads_only=False)
        (error,) = beyond_policy(workspace, load_spec(spec)).errors
    assert error.code == "POLICY_HOST" and "gpu2" in error.message


def test_secrets_go_neither_to_an_agents_host_nor_beyond_their_own(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "a-value-of-the-token-123")
    agent.settings("secrets: {allow: [MY_TOKEN]}")
    spec = _SPEC.replace("env: {", "secrets: [MY_TOKEN]\nenv: {")
    with listening() as (port, was_reached):
        new = HostRecord("gpu9", "127.0.0.1", port=port, by_agent=True)
        with open_workspace(agent.environment) as workspace:
            workspace.control.put_host(new, 1.0)

        async def on_new_host(client: Client) -> None:
            for tool in ("plan_run", "launch"):
                error = await error_of(client, tool, spec=spec, host="gpu9")
                assert error.startswith("CONFIRMATION_REQUIRED: ") and "MY_TOKEN to gpu9" in error

        async def reading(client: Client) -> None:
            error = await error_of(client, "plan_run", spec=spec, host="gpu9")
            assert error.startswith("POLICY_SECRET: ")

        async def bound(client: Client) -> None:
            for tool in ("plan_run", "launch"):
                error = await error_of(client, tool, spec=spec)
                assert error.startswith("POLICY_SECRET: ")

        agent.session(on_new_host)
        agent.session(reading, read_only=True)
        assert not was_reached()
    agent.settings("secrets: {allow: [MY_TOKEN]}\nagent: {secrets: {MY_TOKEN: [gpu1]}}")
    agent.session(bound, says="accept")
    assert agent.asked == []


@_ERAS
def test_a_new_host_is_connected_to_only_with_an_approval(agent: Agent, era: str) -> None:
    with listening() as (port, was_reached):
        wanted = {"name": "gpu9", "address": f"root@127.0.0.1:{port}"}

        async def unasked(client: Client) -> None:
            error = await error_of(client, "add_host", **wanted)
            assert error.startswith("CONFIRMATION_REQUIRED: ") and " approve q-" in error

        async def declined(client: Client) -> None:
            error = await error_of(client, "add_host", **wanted)
            assert error.startswith("CONFIRMATION_DECLINED: ")

        agent.session(unasked, era)
        agent.session(declined, era, says="decline")
        assert not was_reached()
        assert f"root@127.0.0.1:{port}" in agent.asked[0]
    with open_workspace(agent.environment) as workspace:
        assert workspace.control.hosts() == []
