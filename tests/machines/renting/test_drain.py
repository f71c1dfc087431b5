"""Drain an instance before its release: what is refused, copied, given up, or stopped."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.backends.tcp_proxy import free_port
from support.machines.rented_instances import rent
from support.runs.operator import FAST, SLOW, Operator
from support.runs.running_run import run_async, wait_until

from trainer_runtime.core.files.durable import try_lock
from trainmaster.errors.confirmation import Quote, agreed
from trainmaster.errors.errors import SpendError, StateError
from trainmaster.machines.renting.drain import Drained, drain, mirror_runs
from trainmaster.machines.renting.maintain_rentals import idle_instances
from trainmaster.machines.renting.release import release
from trainmaster.runs.fetch import fetch
from trainmaster.runs.resume.migrate import migrate
from trainmaster.runs.resume.next_attempt import ResumeRequest
from trainmaster.runs.resume.old_placements import stop_old_placements
from trainmaster.runs.stop import stop
from trainmaster.store.control.instances import ReleaseRequest, RentedInstance, RentState
from trainmaster.store.control.runs import Placed
from trainmaster.store.failures import Failures
from trainmaster.store.host_record import HostRecord
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.slow

GONE = "gone-host"


def move(workspace: Workspace, run_id: str, *, known: bool = True) -> RentedInstance:
    """Move the run to a rented instance that does not answer, or has ended."""
    run = workspace.control.run(run_id)
    old, new = (workspace.mirror.of(run_id, run.placement + n) for n in (0, 1))
    shutil.copytree(old.root, new.root)
    folder = workspace.control.folder(run)
    assert workspace.control.place_elsewhere(run, Placed(GONE, "process", folder), time.time())
    ingest_placement(workspace.metrics, new, run_id, run.placement + 1)
    if known:
        port = free_port("127.0.0.1")
        workspace.control.put_host(HostRecord(GONE, "127.0.0.1", "nobody", port), time.time())
        return rent(workspace, GONE)
    return rent(workspace, GONE, ended_t=time.time(), end_reason="gone")


def releasing(
    workspace: Workspace, instance: RentedInstance, *, force: bool, ago_s: float
) -> RentedInstance:
    request = ReleaseRequest(time.time() - ago_s, force, "released")
    return workspace.control.instances.change(instance.tag, release=request)


async def drained(workspace: Workspace, instance: RentedInstance, now: float) -> Drained | None:
    assert instance.release is not None
    return await drain(workspace, instance, instance.release, now)


def test_open_runs_keep_an_instance_and_the_quote_of_force_lists_them(
    operator: Operator,
) -> None:
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
    (instance,) = operator.workspace.control.instances.all()
    assert (instance.state, instance.release) == (RentState.READY, None)


def test_data_that_can_not_be_copied_keeps_an_instance_unless_forced(
    operator: Operator,
) -> None:
    workspace = operator.workspace

    async def work() -> None:
        run = await operator.launch(FAST, checkpoint="{mirror: none}")
        await operator.ended(run)
        instance = move(workspace, run)
        asked = releasing(workspace, instance, force=False, ago_s=1)
        assert await drained(workspace, asked, now()) is None  # it is retried
        kept = await drained(
            workspace, releasing(workspace, instance, force=False, ago_s=99), now()
        )
        assert kept is not None and not kept.done
        assert kept.changes["release_refusal"].code == "NOT_MIRRORED"
        left = await drained(workspace, releasing(workspace, instance, force=True, ago_s=99), now())
        assert left is not None and left.done and "LINK_LOST" in left.changes["loss"]

    run_async(work)


def test_an_ended_lease_does_not_wait_for_data(operator: Operator) -> None:
    workspace = operator.workspace

    async def work() -> None:
        run = await operator.launch(SLOW, steps="600")
        instance = releasing(workspace, move(workspace, run), force=True, ago_s=1)
        assert await drained(workspace, instance, now()) is None  # its run may still stop
        left = await drained(workspace, instance, instance.lease_end_t + 61)
        assert left is not None and left.done and left.changes["loss"]

    run_async(work)


def test_a_refused_idle_release_is_retried_only_later(operator: Operator) -> None:
    began_t = time.time() - 3600
    instance = rent(operator.workspace, since_t=began_t)
    operator.workspace.control.instances.change(instance.tag, release_refused_t=now())
    failures = Failures(operator.workspace.home)
    assert idle_instances(operator.workspace, now(), failures) == []
    later = idle_instances(operator.workspace, now() + 901, failures)
    assert [one.host for one in later] == ["debug"]


def test_a_concurrent_request_is_not_overwritten(operator: Operator) -> None:
    records = operator.workspace.control.instances
    instance = releasing(operator.workspace, rent(operator.workspace), force=True, ago_s=0)
    kept = records.change(instance.tag, release=None, when=lambda one: one != instance)
    assert kept.release.force


def test_the_final_model_and_checkpoints_remain_after_the_instance_has_ended(
    operator: Operator, tmp_path: Path
) -> None:
    workspace = operator.workspace

    async def work() -> None:
        run = await operator.launch(FAST, checkpoint="{mirror: operator}")
        await operator.ended(run)
        let_transfers_end(workspace, run)
        instance = rent(workspace)
        assert await mirror_runs(workspace, instance, [workspace.control.run(run)]) == [run]
        move(workspace, run, known=False)
        for what in ("final", "checkpoints/**"):
            answer = await fetch(workspace, run, what, tmp_path / "fetched")
            assert answer.files

    run_async(work)
    fetched = {path.name for path in (tmp_path / "fetched").rglob("*") if path.is_file()}
    assert "manifest.json" in fetched


def test_an_abandoned_attempt_is_stopped_once_its_host_is_reachable(operator: Operator) -> None:
    workspace = operator.workspace

    failures = Failures(workspace.home)

    async def work() -> None:
        run = await operator.launch(SLOW, steps="600")
        desired = Path(workspace.control.folder(workspace.control.run(run))) / "desired.json"
        move(workspace, run)
        view = load_view(workspace, run)
        request = ResumeRequest("scratch", (), None, None, "local")
        with pytest.raises(StateError, match="RUN_IS_RUNNING"):
            await migrate(workspace, view, "local", request)
        await migrate(workspace, view, "local", replace(request, abandon=True))
        assert workspace.control.left_behind() == [(run, GONE)]
        assert await stop_old_placements(workspace, failures) == {}  # still unreachable
        workspace.control.leave_behind(run, "debug", now())
        did = await stop_old_placements(workspace, failures)
        assert did == {run: ["stopped what was left of it on debug"]}
        assert read_json(desired)["state"] == "stopped"
        workspace.control.remove_host(GONE)
        assert (
            await stop_old_placements(workspace, failures) == {}
            and not workspace.control.left_behind()
        )

    run_async(work)


def let_transfers_end(workspace: Workspace, run: str) -> None:
    """Wait for the transfer process that was started at the run's end: it holds the lock."""

    def has_ended() -> bool:
        lock = try_lock(workspace.home.transfer_lock(run))
        if lock is not None:
            os.close(lock)
        return lock is not None

    wait_until(has_ended, "the transfers' end")


def now() -> float:
    return time.time()


def read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found
