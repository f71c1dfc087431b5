"""`unattended`: which runs need a keeper, and what is said where none is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.backends.tcp_proxy import free_port
from support.core.journal_records import attempt_starting, lines, state
from support.runs.operator import SLOW, Operator
from support.runs.running_run import run_async, small_spec
from support.sync.followed_run import FakeRun

from trainer_runtime.core.answers.timer import TimerAnswer
from trainer_runtime.core.lease.lease import Lease, OwnEnd
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.status import StatusAnswer
from trainmaster.keeper.tick import tick
from trainmaster.machines.renting.leases import lease_timer
from trainmaster.runs.planning.plan_run import plan_run
from trainmaster.runs.status.status import get_status
from trainmaster.runs.status.unattended import needs_of, unattended
from trainmaster.runs.stop import stop
from trainmaster.store.control.instances import RentedInstance, RentState
from trainmaster.store.host_record import HostRecord
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.keeper_state import record_installed
from trainmaster.sync.workspace import Workspace

NO_MIRROR: dict[str, Any] = {"checkpoint": {"mirror": None}}
HERE = {"checkpoint": {"mirror": "operator"}}
MIRRORED = "{every: 20, mirror: operator}"
WEBHOOK = "ops: {kind: webhook, url: 'http://127.0.0.1:9/', defaults: false}"


def ends_itself(own_end: OwnEnd | None, lacks: str | None = None) -> bool:
    timer = lease_timer(
        Lease("tm-a", "vast", "1", 0.0, own_end), TimerAnswer(runs=True, t=0.0, lacks=lacks)
    )
    assert timer.can_self_terminate == ("can't end the instance" not in timer.description)
    return timer.can_self_terminate


@pytest.mark.parametrize(
    ("config", "session", "others", "said"),
    [
        (NO_MIRROR, None, {}, []),
        (HERE, None, {}, ["copied here"]),
        (NO_MIRROR, "its next session is pushed from here", {}, ["next session"]),
        (NO_MIRROR, None, {"ends_itself": ends_itself(OwnEnd())}, []),
        (
            NO_MIRROR,
            None,
            {"ends_itself": ends_itself(OwnEnd(), "no key")},
            ["end itself"],
        ),
        (NO_MIRROR, None, {"ends_itself": ends_itself(None)}, ["end itself"]),
        (HERE, None, {"alerts": True, "sends": True}, ["copied", "alerts", "goes up"]),
        (NO_MIRROR, None, {"pending": True}, ["newest request"]),
        (NO_MIRROR, None, {"silent": True}, ["supervisor"]),
    ],
)
def test_what_is_done_from_here_alone_is_named(
    config: dict[str, Any], session: str | None, others: dict[str, Any], said: list[str]
) -> None:
    needs = needs_of(config["checkpoint"]["mirror"], session, **others)
    assert len(needs) == len(said)
    assert all(words in need for words, need in zip(said, needs, strict=True))


def test_a_keeper_that_is_there_or_not_needed_is_not_spoken_of() -> None:
    assert unattended([], "no keeper is installed") is None
    assert unattended(["it waits"], None) is None
    text = unattended(["it waits", "it hopes"], "no keeper is installed")
    assert text == "no: it waits, it hopes; no keeper is installed (`trainmaster keeper install`)"


def test_a_plan_says_what_a_keeper_would_be_for(workspace: Workspace, tmp_path: Path) -> None:
    def planned(**changes: str) -> str | None:
        spec = small_spec(tmp_path, host="debug", **changes)
        return run_async(lambda: plan_run(workspace, spec)).unattended

    assert planned() is None
    assert str(planned(checkpoint=MIRRORED)).startswith("no: its checkpoints are copied here; no")
    workspace.home.settings.write_text(f"destinations: {{{WEBHOOK}}}\n")
    assert planned() is None
    alert = "[{name: gone, when: state lost, to: ops}]"  # which no host can detect for itself
    assert "alerts" in str(planned(alerts=alert))
    record_installed(workspace.home, 300.0)
    assert planned(checkpoint=MIRRORED, alerts=alert) is None


@pytest.mark.slow
def test_a_status_names_what_waits_for_somebody_who_acts(workspace: Workspace) -> None:
    def status() -> StatusAnswer:
        return run_async(lambda: get_status(workspace, run.run_id))

    long_ago = time.time() - 3600.0
    workspace.control.put_host(HostRecord("gpu1", "127.0.0.1", port=free_port("127.0.0.1")), 1.0)
    run = FakeRun(workspace, workspace.home.root / "gpu1" / "small-aaaaaa", "gpu1")
    journal = (attempt_starting(1), ("attempt_running", {"attempt": 1}), state("running"))
    run.mirror.append("supervisor.jsonl", b"".join(lines(journal, first_t=long_ago)))
    ingest_placement(workspace.metrics, run.mirror, run.run_id, 1)
    assert status().unattended is None  # its host is away, which is another matter
    desired = Desired(DesiredState.STOPPED, 2, why="stop")
    workspace.control.request(run.run_id, desired, time.time())
    assert "its newest request is delivered from here" in str(status().unattended)


@pytest.mark.slow
def test_a_status_says_it_until_a_keeper_is_there_or_the_run_has_ended(
    operator: Operator, workspace: Workspace
) -> None:
    async def work() -> None:
        run = await operator.launch(SLOW, steps="600", checkpoint=MIRRORED)
        text = (await get_status(workspace, run)).unattended
        assert text is not None and text.startswith("no: its checkpoints are copied here")
        now = time.time()
        instance = RentedInstance(
            "tm-a-bbbbbb", "debug", "vast", RentState.READY, "1", now, now + 60, 1.0, 1.0,
            can_self_terminate=ends_itself(None),
        )  # fmt: skip
        workspace.control.instances.add(instance)
        assert "can't end itself" in str((await get_status(workspace, run)).unattended)
        workspace.control.instances.change(instance.tag, RentState.ENDED, ended_t=now)
        await tick(workspace, every="5m")
        assert (await get_status(workspace, run)).unattended is None
        workspace.home.keeper_ticked.unlink()
        await stop(workspace, run)
        await operator.ended(run)
        assert (await get_status(workspace, run)).unattended is None

    run_async(work)
