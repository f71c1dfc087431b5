"""`trainmaster hosts …` and the two tools, against a real sshd."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.types import ElicitRequestParams, ElicitResult
from support.backends.ssh_hosts import Sshd

from trainmaster.cli import run
from trainmaster.mcp import build_server

Command = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def box() -> Iterator[Sshd]:
    with Sshd() as started:
        yield started


@pytest.fixture
def command(home: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = run([*arguments, "--json"])
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return code, answer

    return call


def adding(box: Sshd, name: str = "gpu1") -> list[str]:
    address = f"{box.user}@{box.address}:{box.port}"
    root = f"{box.home}/trainmaster"
    return ["hosts", "add", name, address, "--key", str(box.key), "--root", root]


@pytest.mark.slow
def test_a_host_is_added_listed_checked_and_removed(command: Command, box: Sshd) -> None:
    code, added = command(*adding(box))
    assert code == 0
    assert set(added) == {"host", "address", "fingerprint", "checks", "next_step"}
    assert added["fingerprint"].startswith("SHA256:")
    code, checked = command("hosts", "check", "gpu1")
    assert (code, checked["ok"]) == (0, True)
    fields = {"name", "state", "found", "untrusted_found", "remedy", "untrusted_remedy"}
    assert all(set(row) <= fields for row in checked["checks"])
    _, listed = command("hosts")
    [local, row] = listed["hosts"]
    assert (local["name"], row["name"], row["state"]) == ("local", "gpu1", "ok")
    assert row["fingerprint"] == added["fingerprint"]
    assert command("hosts", "gc", "gpu1", "--dry-run")[1]["removed"] == []
    assert command("hosts", "trust", "gpu1")[1]["changed"] is False
    assert command("hosts", "remove", "gpu1") == (0, {"host": "gpu1", "abandoned": []})
    assert [row["name"] for row in command("hosts")[1]["hosts"]] == ["local"]


def test_a_check_that_fails_ends_with_1(command: Command, box: Sshd) -> None:
    command(*adding(box))
    box.halt()
    code, answer = command("hosts", "check", "gpu1")
    assert (code, answer["ok"]) == (1, False)
    box.start()


def test_errors_are_reported_in_the_one_shape(command: Command) -> None:
    for arguments, code, error in (
        (("hosts", "check", "nobody"), 1, "HOST_UNKNOWN"),
        (("hosts", "remove", "nobody"), 1, "HOST_UNKNOWN"),
        (("hosts", "trust", "local"), 2, "BAD_ARGUMENT"),
        (("hosts", "add", "local", "root@somewhere"), 2, "BAD_ARGUMENT"),
        (("hosts", "add", "gpu1"), 2, "BAD_ARGUMENT"),
        (("hosts", "add", "gpu1", "a", "--transport", "telnet"), 2, "BAD_ARGUMENT"),
        (("hosts", "nothing"), 2, "BAD_ARGUMENT"),
    ):
        got, answer = command(*arguments)
        assert (got, answer["error"]["code"]) == (code, error)
        assert answer["error"]["fix"]


def test_a_launch_on_an_unknown_host_says_how_it_is_added(command: Command, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a line\n" * 1000)
    spec = (
        "name: x\nframework: nanogpt\nmodel: {n_layer: 1, n_head: 2, d_model: 32}\n"
        f"data: {{sources: [{{path: {tmp_path}/text.txt}}], seq_len: 32}}\nsteps: 5\n"
    )
    code, answer = command("launch", spec, "--host", "gpu7")
    assert (code, answer["error"]["code"]) == (1, "HOST_UNKNOWN")
    assert " hosts add gpu7" in answer["error"]["fix"]


@pytest.mark.slow
def test_people_see_tables_without_a_terminals_escapes(
    home: Path, box: Sshd, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, words in (
        (adding(box), ("Added gpu1", "SHA256:", "reachable")),
        (["hosts"], ("gpu1", "open runs", "this machine")),
        (["hosts", "check", "gpu1"], ("remedy", "host key", "can train")),
        (["hosts", "gc", "gpu1"], ("runtime/", "Removed 0 B")),
        (["hosts", "trust", "gpu1"], ("SHA256:",)),
        (["hosts", "remove", "gpu1"], ("Removed gpu1",)),
    ):
        assert run(arguments) == 0
        printed = capsys.readouterr().out
        assert [word for word in words if word not in printed] == [], printed
        assert "\x1b" not in printed


def test_the_tools_add_list_and_check(home: Path, box: Sshd) -> None:
    async def agree(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert f"root@{box.address}:{box.port}" in params.message
        return ElicitResult(action="accept", content={"agree": True})

    async def scenario() -> None:
        server = build_server({"TRAINMASTER_HOME": str(home)})
        async with Client(server, mode="2026-07-28", elicitation_callback=agree) as client:

            async def call(tool: str, /, **arguments: Any) -> Any:
                result = await client.call_tool(tool, arguments)
                text = result.content[0].text  # type: ignore[union-attr]
                assert not result.is_error, text
                return result.structured_content

            added = await call(
                "add_host",
                name="gpu1",
                address=f"root@{box.address}:{box.port}",
                key=str(box.key),
                root=f"{box.home}/trainmaster",
            )
            assert added["fingerprint"].startswith("SHA256:")
            listed = await call("list_hosts")
            assert [row["name"] for row in listed["hosts"]] == ["local", "gpu1"]
            assert "check" not in listed
            checked = await call("list_hosts", check="gpu1")
            assert checked["check"]["ok"] is True
            assert checked["hosts"][1]["state"] == "ok"
            refused = await client.call_tool("list_hosts", {"check": "gpu9"})
            assert refused.is_error
            assert refused.content[0].text.startswith("HOST_UNKNOWN: ")  # type: ignore[union-attr]

    anyio.run(scenario)
