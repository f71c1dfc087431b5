"""What each run state and each kind of finding advises is executed on both faces, as given."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.core.journal_records import EventBody, attempt_ended, attempt_starting, started, state
from support.errors.executed_advice import ExecutedAdvice
from support.kaggle.site import KaggleSite
from support.mcp.mcp_client import answer_of, connected
from support.runs.planted_journal import EVENTS, PlantedJournal
from support.runs.planted_runs import HALVED, HALVES_LR, finding
from support.runs.running_run import CommandLine

from trainer_runtime.core.diagnosis.detectors.messages import CODES
from trainer_runtime.core.diagnosis.remedies.advice import ADVICE, sentences
from trainer_runtime.core.protocol.followed_files import JOURNAL
from trainmaster.backends import KAGGLE
from trainmaster.runs.status.next_step import BY_REASON, BY_REASON_OF_STOP
from trainmaster.store.control.kaggle import SessionRequest, SessionState
from trainmaster.store.host_record import HostRecord
from trainmaster.sync.workspace import open_workspace

_STARTING = (attempt_starting(1), state("preparing"))
_RUNNING = (*_STARTING, ("attempt_running", {"attempt": 1}), state("running"))
_ENDED = (*_RUNNING, attempt_ended(1, "crashed", code=1, detail="exit code 1", last_words="no"))
_FAILED = (*_ENDED, state("failed", reason="crashed"))
_EARLY = attempt_ended(1, "exited_early", code=0, detail="exit code 0 at step 30 of 1000")
_SCRIPT = {"framework": "script", "script": {"command": ["python3", "it's.py"]}}
_STATES: Mapping[str, tuple[EventBody, ...]] = {
    "queued": (attempt_starting(1), state("queued")),
    "preparing": _STARTING,
    "running": _RUNNING,
    "spiking": (*_RUNNING, finding("0a", "loss_spike", "warning")),
    "stalled": (*_RUNNING, finding("0a", "stall")),
    "unpatched": (*_RUNNING, finding("0a", "loss_divergence")),
    "patched": (*_RUNNING, finding("0a", patches=[HALVED])),
    "recovering": (*_ENDED, state("recovering", reason="crashed"), finding("0a")),
    "undecided": (*_ENDED, state("recovering", reason="needs_operator"), finding("0a")),
    "stopping": (*_RUNNING, state("stopping")),
    "stopped": (*_RUNNING, state("stopped")),
    "stopped-patched": (*_RUNNING, finding("0a", patches=[HALVES_LR]), state("stopped")),
    "failed": _FAILED,
    "failed-unpatched": (*_FAILED, finding("0a")),
    "failed-patched": (*_FAILED, finding("0a", patches=[HALVED])),
    "unprepared": (*_STARTING, _ENDED[-1], state("failed", reason="max_restarts")),
    "completed": (*_RUNNING, state("completed", reason="completed")),
    "completed-wrong": (*_RUNNING, finding("0a"), state("completed", reason="completed")),
    **{f"failed-{why}": (*_ENDED, state("failed", reason=why)) for why in BY_REASON},
    **{f"stopped-{why}": (*_RUNNING, state("stopped", reason=why)) for why in BY_REASON_OF_STOP},
}
_OF_CLUSTERS = ("missing", "differ", "unreachable")
# Of a program of the user's own, and of a training that others started.
_OF_SCRIPTS = ("running", "failed", "failed-unpatched", "completed", "stopped")
_OF_OTHERS = ("running", "unpatched", "failed", "completed", "stopped")
# Whether the newest session is alive.
_AT_KAGGLE = {
    "queued": False,
    "running": True,
    "undecided": True,
    "stopping": True,
    "failed": False,
    "failed-patched": False,
    "failed-no_progress": False,
    "stopped": False,
    "completed": False,
}


@pytest.fixture
def executed(command: CommandLine, tmp_path: Path) -> Iterator[ExecutedAdvice]:
    spec = tmp_path / "a spec.yaml"
    spec.write_text("name: adv\n")
    yield ExecutedAdvice(command, str(spec), tmp_path / "fetched")


def plant(command: CommandLine) -> list[str]:
    """A run in each state, on this machine; one on a host that refuses connections."""
    with open_workspace(command.environment) as workspace:
        login = HostRecord("login", "127.0.0.1", port=9, launcher="slurm")
        workspace.control.put_host(login, 1.0)

        def planted(name: str, journal: tuple[EventBody, ...], **config: Any) -> str:
            host = "login" if name.endswith(_OF_CLUSTERS) else "local"
            run = PlantedJournal(workspace, name, host=host, **config)
            run.write(started(0, 1000), name=EVENTS)
            run.write(*journal)
            files_of(command, run.run_id)
            return run.run_id

        runs = [planted(name.replace("_", "-"), journal) for name, journal in _STATES.items()]
        for kind, names, config in (
            ("own", _OF_SCRIPTS, _SCRIPT),
            ("theirs", _OF_OTHERS, {"framework": "attached"}),
        ):
            runs += [planted(f"{kind}-{name}", _STATES[name], **config) for name in names]
        early = (*_RUNNING, _EARLY, state("recovering", reason="exited_early"))
        runs.append(planted("own-early", early, **_SCRIPT))
        silent = PlantedJournal(workspace, "silent", host="gpu1")
        silent.write(*_RUNNING, t=time.time() - 3600)
        return [*runs, silent.run_id]


def plant_at_kaggle(command: CommandLine) -> list[str]:
    """A run in each state, in sessions of the stand-in's Kaggle."""
    with open_workspace(command.environment) as workspace:
        runs = []
        for name, is_alive in _AT_KAGGLE.items():
            run = PlantedJournal(workspace, f"k-{name}", host=KAGGLE)
            sessions = workspace.control.kaggle
            kernel = SessionRequest(f"somebody/tm-{run.run_id}", 1, 3600.0)
            sessions.intend(run.run_id, time.time(), kernel)
            state = SessionState.RUNNING if is_alive else SessionState.ENDED
            sessions.change(run.run_id, 1, state, running_t=time.time(), ended_t=None)
            run.write(started(0, 1000), name=EVENTS)
            run.write(*_STATES[name])
            runs.append(run.run_id)
        return runs


def test_what_each_state_of_a_run_at_kaggle_advises_runs_on_both_faces(
    command: CommandLine, executed: ExecutedAdvice, kaggle_site: KaggleSite
) -> None:
    command.environment |= kaggle_site.environment
    runs = plant_at_kaggle(command)
    for answer in [command(word, run) for run in runs for word in ("status", "diagnose")]:
        executed.of_command_line(answer)

    async def by_tools() -> None:
        async with connected(command.environment) as client:
            for run in runs:
                for tool in ("get_run", "diagnose"):
                    await executed.of_tools(client, await answer_of(client, tool, run_id=run))

    anyio.run(by_tools)
    assert len(executed.lines) > 4 and len(executed.calls) > 4


def files_of(command: CommandLine, run_id: str) -> None:
    """What advice has fetched, in the folder of a run on this machine."""
    folder = command.home / "local" / "runs" / run_id
    for file in ("code/saved.bin", "attempts/1/train.log"):
        (folder / file).parent.mkdir(parents=True)
        (folder / file).write_text("step 1: loss 2.5\n")


@pytest.mark.long
def test_what_each_state_of_a_run_advises_runs_as_a_command(
    command: CommandLine, executed: ExecutedAdvice
) -> None:
    runs = plant(command)
    answers = [command(word, run) for run in runs for word in ("status", "diagnose")]
    assert all(answer.get("next_step") for answer in answers)
    for answer in answers:
        executed.of_command_line(answer)
    assert any("'code/*'" in line for line in executed.lines) and len(executed.lines) > 20


def test_what_each_state_of_a_run_advises_runs_as_a_call(
    command: CommandLine, executed: ExecutedAdvice
) -> None:
    runs = plant(command)

    async def by_tools() -> None:
        async with connected(command.environment) as client:
            shown = [
                (await client.call_tool(tool, {"run_id": run})).structured_content
                for run in runs
                for tool in ("get_run", "diagnose")
            ]
            for answer in shown:
                await executed.of_tools(client, answer)

    anyio.run(by_tools)
    assert any('"code/*"' in call for call in executed.calls) and len(executed.calls) > 10


def plant_each_kind(command: CommandLine) -> tuple[str, set[str]]:
    """A failed run on this machine with a finding of each kind, and their codes."""
    codes = {code: sentences(code) for code in ADVICE}
    codes |= {code: message.advice for code, message in CODES.items()}
    with open_workspace(command.environment) as workspace:
        run = PlantedJournal(workspace, "ill", host="local")
        files_of(command, run.run_id)
        run.write(
            *_ENDED,
            *(
                finding(f"{at:08x}", code, "warning", advice=list(advice))
                for at, (code, advice) in enumerate(codes.items())
            ),
            state("failed", reason="crashed"),
        )
        # A server follows the run's files meanwhile.
        mirrored = workspace.mirror.of(run.run_id, 1).path(JOURNAL).read_bytes()
    (command.home / "local" / "runs" / run.run_id / JOURNAL).write_bytes(mirrored)
    return run.run_id, set(codes)


@pytest.mark.long
def test_what_each_kind_of_finding_advises_runs_as_a_command(
    command: CommandLine, executed: ExecutedAdvice
) -> None:
    run, codes = plant_each_kind(command)
    answers = [command("diagnose", run, "--all")]
    while "cursor" in answers[-1]:
        answers.append(command("diagnose", run, "--all", "--cursor", answers[-1]["cursor"]))
    assert codes_of(answers) == codes
    for answer in answers:  # after the last page: a resume changes what is listed
        executed.of_command_line(answer)
    assert len(executed.lines) > 4


def test_what_each_kind_of_finding_advises_runs_as_a_call(
    command: CommandLine, executed: ExecutedAdvice
) -> None:
    run, codes = plant_each_kind(command)

    async def by_tools() -> None:
        async with connected(command.environment) as client:
            arguments = {"run_id": run, "everything": True}
            answers = [await answer_of(client, "diagnose", **arguments)]
            while "cursor" in answers[-1]:
                cursor = answers[-1]["cursor"]
                answers.append(await answer_of(client, "diagnose", **arguments, cursor=cursor))
            assert codes_of(answers) == codes
            for answer in answers:
                await executed.of_tools(client, answer)

    anyio.run(by_tools)
    assert any("tracking={}" in call for call in executed.calls)
    assert {call.partition("(")[0] for call in executed.calls} >= {
        "list_hosts", "plan_run", "resume",
    }  # fmt: skip


def codes_of(answers: Iterable[Mapping[str, Any]]) -> set[str]:
    return {listed["code"] for answer in answers for listed in answer["findings"]}
