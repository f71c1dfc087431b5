"""`unattended`: which runs need a keeper, and what is said where none is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.runs.operator import SLOW, Operator
from support.runs.running_run import run_async, small_spec

from trainer_runtime.core.answers.timer import TimerAnswer
from trainer_runtime.core.lease.lease import Lease, OwnEnd
from trainmaster.keeper.tick import tick
from trainmaster.machines.renting.leases import own_timer
from trainmaster.runs.planning.plan_run import plan_run
from trainmaster.runs.status import get_status
from trainmaster.runs.stop import stop
from trainmaster.runs.unattended import needs_of, unattended
from trainmaster.store.control_instances import RentedBox, RentState
from trainmaster.sync.keeper_state import record_installed
from trainmaster.sync.workspace import Workspace

NO_MIRROR: dict[str, Any] = {"checkpoint": {"mirror": None}}
HERE = {"checkpoint": {"mirror": "operator"}}
MIRRORED = "{every: 20, mirror: operator}"
WEBHOOK = "ops: {kind: webhook, url: 'http://127.0.0.1:9/', defaults: false}"


def ends_itself(own_end: OwnEnd | None, lacks: str | None = None) -> bool:
    timer = own_timer(
        Lease("tm-a", "vast", "1", 0.0, own_end), TimerAnswer(runs=True, t=0.0, lacks=lacks)
    )
    assert timer.ends_itself == ("can't end itself" not in timer.words)
    return timer.ends_itself


@pytest.mark.parametrize(
    ("config", "host", "others", "said"),
    [
        (NO_MIRROR, "box", {}, []),
        (HERE, "box", {}, ["copied here"]),
        (NO_MIRROR, "kaggle", {}, ["next session"]),
        (NO_MIRROR, "box", {"ends_itself": ends_itself(OwnEnd("http"))}, []),
        (
            NO_MIRROR,
            "box",
            {"ends_itself": ends_itself(OwnEnd("http"), "no key")},
            ["end itself"],
        ),
        (NO_MIRROR, "box", {"ends_itself": ends_itself(None)}, ["end itself"]),
        (HERE, "box", {"alerts": True, "sends": True}, ["copied", "alerts", "goes up"]),
    ],
)
def test_what_is_done_from_here_alone_is_named(
    config: dict[str, Any], host: str, others: dict[str, Any], said: list[str]
) -> None:
    needs = needs_of(config["checkpoint"]["mirror"], host, **others)
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


def test_a_status_says_it_until_a_keeper_is_there_or_the_run_has_ended(
    operator: Operator, workspace: Workspace
) -> None:
    async def work() -> None:
        run = await operator.launch(SLOW, steps="600", checkpoint=MIRRORED)
        text = (await get_status(workspace, run)).unattended
        assert text is not None and text.startswith("no: its checkpoints are copied here")
        now = time.time()
        box = RentedBox(
            "tm-a-bbbbbb", "debug", "vast", RentState.READY, "1", now, now + 60, 1.0, 1.0,
            body={"ends_itself": ends_itself(None)},
        )  # fmt: skip
        workspace.control.boxes.add(box)
        assert "can't end itself" in str((await get_status(workspace, run)).unattended)
        workspace.control.boxes.change(box.tag, RentState.ENDED, ended_t=now)
        await tick(workspace, every="5m")
        assert (await get_status(workspace, run)).unattended is None
        workspace.home.keeper_ticked.unlink()
        await stop(workspace, run)
        await operator.ended(run)
        assert (await get_status(workspace, run)).unattended is None

    run_async(work)
