"""Every face says the same of a run that is watched, and of its log as a file: state, step, loss,
findings, and whether the log is understood."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from support.host.foreign_trainings import OUT_OF_MEMORY, ForeignTraining, lines, writing
from support.mcp.mcp_client import answer_of, connected
from support.runs.running_run import CommandLine, run_async, wait_until

from trainmaster.board.access import Access, new_token
from trainmaster.board.app import BoardApp
from trainmaster.sync.workspace import open_workspace

pytestmark = pytest.mark.slow

_LOGS = {
    "understood": lines(0, 120),
    "unread": "".join(f"upd {at} of 900 -> ce {4 - at / 400:.4f} took 0.1\n" for at in range(120)),
    "dead": lines(0, 40) + OUT_OF_MEMORY,
    "nan": "".join(f"step {at} loss {'nan' if at > 60 else 4 - at / 50}\n" for at in range(90)),
    "few": lines(0, 2),
}
_EXPECTED = {
    "understood": ("running", 119, []),
    "unread": ("running", 0, ["log_not_understood"]),
    "dead": ("failed", 39, ["cuda_oom"]),
    "nan": ("running", 89, ["nan_loss"]),
    "few": ("running", 1, []),
}
_DRAFTED = "upd {step} of {target} -> ce {loss}"
_ON_PAGE = re.compile(r"^- \*\*\w+\*\* `(\w+)`", re.MULTILINE)
Facts = dict[str, Any]


@contextmanager
def _watched(
    command: CommandLine, folder: Path, *names: str
) -> Iterator[dict[str, ForeignTraining]]:
    """A watched process in each of these states, by the name of its run; the dead one has ended."""
    with ExitStack() as kept:
        trainings = {}
        for name in names:
            log = folder / f"{name}.log"
            trainings[name] = kept.enter_context(writing(log))
            trainings[name].say(_LOGS[name])
            command("attach", "--log", str(log), "--name", name)
            if name == "dead":
                trainings[name].end()
        expected = {name: _EXPECTED[name] for name in names}
        wait_until(lambda: _known(command, names) == expected, "all states")
        yield trainings


def test_all_faces_agree_on_each_state(command: CommandLine, tmp_path: Path) -> None:
    with _watched(command, tmp_path, *_LOGS):
        for name, (state, step, codes) in _EXPECTED.items():
            _agree(command, name, state, step, codes)
            _agrees_with_file(command, name, str(tmp_path / f"{name}.log"))


def test_a_pattern_taught_afterwards_reaches_every_face(
    command: CommandLine, tmp_path: Path
) -> None:
    with _watched(command, tmp_path, "understood", "unread") as trainings:
        evidence = command("diagnose", "unread")["findings"][0]["evidence"]
        assert f"drafted as a LINE of it: {_DRAFTED}" in evidence
        taught = command("metrics", "unread", "--pattern", _DRAFTED)
        assert taught["runs"]["unread"]["loss"]["n"] == 120
        _agree(command, "unread", "running", 119, [])
        trainings["unread"].say("upd 120 of 900 -> ce nan took 0.1\n")
        wait_until(lambda: command("status", "unread")["step"] == 120, "the next step")
        _agree(command, "unread", "running", 120, ["nan_loss"])
        command("replay", "unread")
        _agree(command, "unread", "running", 120, ["nan_loss"])

        other = command(
            "metrics", "understood", "--pattern", "iter {step}: loss {any}, time {loss}ms"
        )
        assert other["runs"]["understood"]["loss"]["last"] == 51.2
        assert any("have not changed" in note for note in other["notes"])
        _agree(command, "understood", "running", 119, [])


def _agrees_with_file(command: CommandLine, name: str, log: str) -> None:
    drafted = _DRAFTED if name == "unread" else None
    assert (
        command("metrics", name).get("coverage", {}).get(name, {}).get("untrusted_pattern")
        == drafted
    )
    assert command("metrics", log)["coverage"][log].get("untrusted_pattern") == drafted
    diagnosed = command("diagnose", log)
    codes = [code for code in _EXPECTED[name][2] if code != "log_not_understood"]
    assert _codes(diagnosed["findings"]) == codes
    for unseen in (diagnosed.get("unseen", ()), command("diagnose", name).get("unseen", ())):
        assert ("too few" in " ".join(unseen)) == (name == "few")
    assert command("logs", name)["lines"] == command("logs", log)["lines"]


def _known(command: CommandLine, names: Sequence[str]) -> Facts:
    found = {name: _of_status(command("status", name)) for name in names}
    return {name: (one["state"], one["step"], one["codes"]) for name, one in found.items()}


def _agree(command: CommandLine, name: str, state: str, step: int, codes: list[str]) -> None:
    """Each face gives these; the loss is that of the command `metrics`."""
    faces = {**_of_commands(command, name), **_of_tools(command, name), **_of_board(command, name)}
    loss = command("metrics", name)["runs"][name].get("loss", {}).get("last")
    newest = command("logs", name)["lines"][-5:]
    expected = {"state": state, "step": step, "codes": codes, "loss": loss, "lines": newest}
    for face, facts in faces.items():
        assert facts == {key: expected[key] for key in facts}, face


def _of_commands(command: CommandLine, name: str) -> dict[str, Facts]:
    page = command("status", name, "--page")["page"]
    return {
        "status": _of_status(command("status", name)),
        "diagnose": {"codes": _codes(command("diagnose", name)["findings"])},
        "overview": _of_lines(command("overview"), name),
        "page": {
            "codes": _ON_PAGE.findall(page),
            "state": page.split("State: **")[1].split("*")[0],
        },
    }


def _of_tools(command: CommandLine, name: str) -> dict[str, Facts]:
    async def read() -> dict[str, Facts]:
        async with connected(command.environment) as client:
            metrics = await answer_of(client, "query_metrics", run_id=[name])
            logged = await answer_of(client, "tail_log", run_id=name, limit=5, width=2000)
            return {
                "get_run": _of_status(await answer_of(client, "get_run", run_id=name)),
                "tool diagnose": {
                    "codes": _codes((await answer_of(client, "diagnose", run_id=name))["findings"])
                },
                "tool overview": _of_lines(await answer_of(client, "overview"), name),
                "tail_log": {"lines": logged["lines"]},
                "query_metrics": {"loss": metrics["runs"][name].get("loss", {}).get("last")},
            }

    return anyio.run(read)


def _of_board(command: CommandLine, name: str) -> dict[str, Facts]:
    with open_workspace(command.environment) as workspace:
        token = new_token()
        app = BoardApp(workspace, Access(token))

        async def asked() -> tuple[Facts, Facts]:
            transport = httpx.ASGITransport(app.asgi)
            headers = {"authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost", headers=headers
            ) as client:
                run = await client.get(f"/api/run?run={name}")
                curves = await client.get(f"/api/curves?run={name}")
                return run.json(), curves.json()

        run, curves = run_async(asked)
    loss = curves["runs"][0]["series"].get("loss", {}).get("last")
    found = [one for one in run["diagnosis"]["findings"] if not one.get("over")]
    return {
        "board": _of_status(run["status"]),
        "board's findings": {"codes": _codes(found)},
        "board's curve": {"loss": loss},
    }


def _of_status(status: Facts) -> Facts:
    loss = status["metrics"].get("loss")
    return {
        "state": status["state"],
        "step": status["step"],
        "codes": _codes(status["findings"]),
        "loss": loss,
    }


def _codes(findings: list[Facts]) -> list[str]:
    return [one["code"] for one in findings]


def _of_lines(overview: Facts, name: str) -> Facts:
    every = [
        *overview.get("attention", []),
        *overview.get("running", []),
        *overview.get("ended", []),
    ]
    (line,) = [line for line in every if line.split()[0] == name]
    named = [code for code in ("log_not_understood", "cuda_oom", "nan_loss") if code in line]
    return {"codes": named, "state": "failed" if " failed" in line else "running"}
