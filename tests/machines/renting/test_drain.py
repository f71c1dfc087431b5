"""On the way to a box's end, and away from one: what is refused, brought, given up, or stopped."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from support.backends.tcp_proxy import free_port
from support.machines.rented_instances import rent
from support.runs.operator import FAST, SLOW, Operator
from support.runs.running_run import run_async, wait_until

from trainer_runtime.core.files.durable import try_lock
from trainmaster.machines.renting.drain import bring_all, take_leave
from trainmaster.machines.renting.idle import due_idle
from trainmaster.machines.renting.release import release
from trainmaster.runs.fetch import fetch
from trainmaster.runs.migrate import migrate, stop_old_placements
from trainmaster.runs.stop import stop
from trainmaster.store.control_instances import RentedBox, RentState
from trainmaster.store.host_record import HostRecord
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.words.confirmation import Quote, agreed
from trainmaster.words.errors import SpendError, StateError

pytestmark = pytest.mark.slow

GONE = "gone-box"


def move(workspace: Workspace, run_id: str, *, known: bool = True) -> RentedBox:
    """The run's place is a rented box that nobody answers at, or that is not there any more."""
    run = workspace.control.run(run_id)
    old, new = (workspace.mirror.of(run_id, run.placement + n) for n in (0, 1))
    shutil.copytree(old.root, new.root)
    folder = workspace.control.folder(run)
    assert workspace.control.migrate(run, GONE, "process", folder, time.time())
    ingest_placement(workspace.metrics, new, run_id, run.placement + 1)
    if known:
        port = free_port("127.0.0.1")
        workspace.control.put_host(HostRecord(GONE, "127.0.0.1", "nobody", port), time.time())
        return rent(workspace, GONE)
    return rent(workspace, GONE, ended_t=time.time(), reason="gone")


def asking(workspace: Workspace, box: RentedBox, *, force: bool, ago_s: float) -> RentedBox:
    asked = {"t": time.time() - ago_s, "force": force, "why": "released"}
    return workspace.control.boxes.change(box.tag, body={"release": asked})


def test_a_box_with_open_runs_is_kept_and_force_tells_what_is_stopped(operator: Operator) -> None:
    rent(operator.workspace)
    quotes: list[Quote] = []

    async def declining(quote: Quote) -> str:
        quotes.append(quote)
        raise SpendError("CONFIRMATION_DECLINED", "No.", "Ask again.")

    async def work() -> None:
        run = await operator.launch(SLOW, steps="600")
        with pytest.raises(StateError, match="RUN_IS_RUNNING"):
            await release(operator.workspace, "debug", confirm=agreed)
        with pytest.raises(SpendError, match="CONFIRMATION_DECLINED"):
            await release(operator.workspace, "debug", confirm=declining, force=True)
        assert f"Stopped first: {run}" in quotes[0].text
        await stop(operator.workspace, run)

    run_async(work)
    (box,) = operator.workspace.control.boxes.boxes()
    assert (box.state, box.body.get("release")) == (RentState.READY, None)


def test_what_can_not_be_brought_keeps_a_box_for_a_while_unless_it_is_forced(
    operator: Operator,
) -> None:
    workspace = operator.workspace

    async def work() -> None:
        run = await operator.launch(FAST, checkpoint="{mirror: none}")
        await operator.ended(run)
        box = move(workspace, run)
        asked = asking(workspace, box, force=False, ago_s=1)
        assert await take_leave(workspace, asked, now()) is None  # it is tried again
        kept = await take_leave(workspace, asking(workspace, box, force=False, ago_s=99), now())
        assert kept is not None and not kept.leaves
        assert kept.body["release_refused"]["code"] == "NOT_MIRRORED"
        left = await take_leave(workspace, asking(workspace, box, force=True, ago_s=99), now())
        assert left is not None and left.leaves and "LINK_LOST" in left.body["lost"]

    run_async(work)


def test_a_lease_that_is_over_waits_for_nothing(operator: Operator) -> None:
    workspace = operator.workspace

    async def work() -> None:
        run = await operator.launch(SLOW, steps="600")
        box = asking(workspace, move(workspace, run), force=True, ago_s=1)
        assert await take_leave(workspace, box, now()) is None  # it may be stopped yet
        left = await take_leave(workspace, box, box.lease_end_t + 61)
        assert left is not None and left.leaves and left.body["lost"]

    run_async(work)


def test_a_box_that_was_kept_is_asked_again_only_after_a_while(operator: Operator) -> None:
    began_t = time.time() - 3600
    box = rent(operator.workspace, since_t=began_t)
    operator.workspace.control.boxes.change(box.tag, body={"refused_t": now()})
    assert due_idle(operator.workspace, now()) == []
    assert [one.host for one in due_idle(operator.workspace, now() + 901)] == ["debug"]


def test_a_request_that_came_meanwhile_is_not_overwritten(operator: Operator) -> None:
    records = operator.workspace.control.boxes
    box = asking(operator.workspace, rent(operator.workspace), force=True, ago_s=0)
    kept = records.change(box.tag, body={"release": None}, when=lambda one: one != box)
    assert kept.body["release"]["force"]


def test_final_and_checkpoints_are_here_when_the_box_is_gone(
    operator: Operator, tmp_path: Path
) -> None:
    workspace = operator.workspace

    async def work() -> None:
        run = await operator.launch(FAST, checkpoint="{mirror: operator}")
        await operator.ended(run)
        let_transfers_end(workspace, run)
        box = rent(workspace)
        assert await bring_all(workspace, box, [workspace.control.run(run)]) == [run]
        move(workspace, run, known=False)
        for what in ("final", "checkpoints/**"):
            answer = await fetch(workspace, run, what, tmp_path / "fetched")
            assert answer.files

    run_async(work)
    fetched = {path.name for path in (tmp_path / "fetched").rglob("*") if path.is_file()}
    assert "manifest.json" in fetched


def test_what_was_given_up_is_stopped_when_it_turns_up(operator: Operator) -> None:
    workspace = operator.workspace

    async def work() -> None:
        run = await operator.launch(SLOW, steps="600")
        desired = Path(workspace.control.folder(workspace.control.run(run))) / "desired.json"
        move(workspace, run)
        view = load_view(workspace, run)
        with pytest.raises(StateError, match="RUN_IS_RUNNING"):
            await migrate(workspace, view, "local", from_scratch=True, abandon=False)
        await migrate(workspace, view, "local", from_scratch=True, abandon=True)
        assert workspace.control.left_behind() == [(run, GONE)]
        assert await stop_old_placements(workspace) == {}  # it is still away
        workspace.control.leave_behind(run, "debug", now())
        did = await stop_old_placements(workspace)
        assert did == {run: ["stopped what was left of it on debug"]}
        assert told(desired)["state"] == "stopped"
        workspace.control.remove_host(GONE)
        assert await stop_old_placements(workspace) == {} and not workspace.control.left_behind()

    run_async(work)


def let_transfers_end(workspace: Workspace, run: str) -> None:
    """Wait for the process that waiting for the end has begun: beside it nobody brings anything."""

    def has_ended() -> bool:
        lock = try_lock(workspace.home.transfer_lock(run))
        if lock is not None:
            os.close(lock)
        return lock is not None

    wait_until(has_ended, "the transfers' end")


def now() -> float:
    return time.time()


def told(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found
