"""Real boxes whose end comes by itself: at the end of their lease, or because nothing runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from support.machines.rental_home import Renter, renting
from support.providers.runpod_site import RunPodSite
from support.providers.site import Fault
from support.runs.running_run import kill, wait_until

from trainer_runtime.box.files.files import write_json
from trainer_runtime.core.files.durable import is_locked
from trainer_runtime.core.lease.lease import LEASE
from trainmaster.machines.registry import open_host
from trainmaster.machines.renting.costs import list_costs
from trainmaster.machines.renting.idle import IDLE, release_due
from trainmaster.machines.renting.instances import advance_box
from trainmaster.machines.renting.leases import put, read
from trainmaster.machines.renting.reconcile import reconcile
from trainmaster.store.control.instances import RentState
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.rentals import ProvisionAnswer
from trainmaster.words.paths import Home


@pytest.fixture
def renter(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renter]:
    with RunPodSite() as site, renting(home, site, monkeypatch) as rented:
        yield rented


def provisioned(renter: Renter) -> ProvisionAnswer:
    """A box that is ready, and that nobody is just seeing to."""
    answer = renter.provision()
    lock = Home(renter.home).box_lock(answer.box)
    wait_until(lambda: not is_locked(lock), "the end of whoever saw to it")
    return answer


def test_a_box_ends_itself_with_its_lease_though_operator_and_server_are_gone(
    renter: Renter,
) -> None:
    answer = provisioned(renter)
    assert "ends itself" in answer.own_timer
    (box,) = renter.site.alive
    renter.do(lambda workspace: shorten(workspace, answer.box))
    # From here on, nobody of ours runs any more.
    wait_until(lambda: renter.site.alive == [], "the box's own end")
    box.end()  # returns when nothing of it answers any more
    ends = [asked for asked in renter.site.asked if asked.kind == "end"]
    assert [asked.key for asked in ends] == [box.own_key]
    costs = renter.do(list_costs)
    (row,) = costs.boxes
    assert (row.state, row.reason, costs.committed_usd, costs.strays) == (
        "ended", "lease_over", 0.0, None
    )  # fmt: skip
    assert 0 < costs.spent_usd == row.spent_usd < row.budget_usd


def hide(site: RunPodSite) -> None:
    """Its provider knows no box, though it is there."""
    site.spoilt["list"] = lambda _answer: {"pods": []}
    site.fail("box", Fault("status", status=404), times=2)


async def reboot_and_look(workspace: Workspace) -> None:
    """The timer is killed, as by a reboot, and a later look starts it anew."""
    (box,) = workspace.control.boxes.boxes()
    host = open_host(workspace, box.host)
    root = await host.root()
    await host.disconnect()
    (timer,) = timers(root)
    kill(timer)
    wait_until(lambda: not is_locked(Path(root, ".lease.lock")), "the timer's end")
    workspace.control.boxes.change(box.tag, body={"timer_t": 0.0})
    await advance_box(workspace, box.tag)
    assert len(timers(root)) == 1


def timers(root: str) -> list[int]:
    """The processes that keep the lease of a root's box."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[1:-1] == ["-m", "trainer_runtime", "lease", root]:
                found.append(int(folder.name))
    return found


async def shorten(workspace: Workspace, box: str) -> None:
    """Lay a lease down that is soon over, with nobody there who would be cut off by its end."""
    rented = workspace.control.boxes.box(box)
    assert rented is not None
    host = open_host(workspace, rented.host)
    lease, root = await read(host), await host.root()
    assert lease is not None
    assert (await put(host, lease)).ends_itself
    await host.disconnect()
    end_t = time.time() + 2.0
    workspace.control.boxes.change(box, lease_end_t=end_t)
    write_json(Path(root, LEASE), replace(lease, end_t=end_t).to_dict())


def test_a_box_on_which_nothing_runs_is_given_back_unasked(renter: Renter) -> None:
    told = provisioned(renter)
    (one,) = renter.site.alive
    hide(renter.site)
    did = (renter.do(reconcile).did or {})[told.box]  # as with the key of another account
    assert did[0].startswith("CLOUD_ODD_REPLY")
    renter.site.spoilt.clear()
    renter.do(reboot_and_look)

    (box,) = renter.boxes()

    async def look(workspace: Workspace, after_minutes: float) -> dict[str, str]:
        return release_due(workspace, box.body["ready_t"] + 60.0 * after_minutes)

    assert renter.site.alive == [one]
    assert renter.do(lambda workspace: look(workspace, 29)) == {}
    assert renter.do(lambda workspace: look(workspace, 31)) == {box.tag: IDLE}
    ended = wait_until(
        lambda: [one for one in renter.boxes() if one.state is RentState.ENDED], "its end"
    )
    assert [one.body["reason"] for one in ended] == [IDLE]
    assert renter.site.alive == []
