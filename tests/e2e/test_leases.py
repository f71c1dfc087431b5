"""Real instances that end automatically: at the end of their lease, or when idle."""

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

from trainer_runtime.core.files.durable import is_locked
from trainer_runtime.core.lease.lease import LEASE
from trainer_runtime.host.files.files import write_json
from trainmaster.answers.rentals import CostsAnswer, ProvisionAnswer
from trainmaster.home.paths import Home
from trainmaster.machines.open_host import open_host
from trainmaster.machines.renting.costs import list_costs
from trainmaster.machines.renting.instances import advance_instance
from trainmaster.machines.renting.leases import read_lease, write_lease
from trainmaster.machines.renting.maintain_rentals import IDLE, release_due
from trainmaster.machines.renting.reconcile import reconcile
from trainmaster.store.control.instances import RentState
from trainmaster.store.failures import Failures
from trainmaster.sync.workspace import Workspace


@pytest.fixture
def renter(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renter]:
    with RunPodSite() as site, renting(home, site, monkeypatch) as rented:
        yield rented


def provision_ready(renter: Renter) -> ProvisionAnswer:
    """A ready instance whose worker has ended."""
    answer = renter.provision()
    lock = Home(renter.home).instance_lock(answer.instance)
    wait_until(lambda: not is_locked(lock), "the end of its worker")
    return answer


async def refreshed_costs(workspace: Workspace) -> CostsAnswer:
    return await list_costs(workspace, await reconcile(workspace))


@pytest.mark.long
def test_an_instance_ends_itself_with_its_lease_without_client_and_server(
    renter: Renter,
) -> None:
    answer = provision_ready(renter)
    assert "ends the instance" in answer.lease_timer
    (instance,) = renter.site.alive
    renter.do(lambda workspace: shorten(workspace, answer.instance))
    # No process of the home runs from here on.
    wait_until(lambda: renter.site.alive == [], "the end by its own timer")
    instance.end()  # returns once all its processes have ended
    ends = [asked for asked in renter.site.asked if asked.kind == "end"]
    assert [asked.key for asked in ends] == [instance.own_key]
    costs = renter.do(refreshed_costs)
    (row,) = costs.instances
    assert (row.state, row.reason, costs.committed_usd, costs.orphans) == (
        "ended", "lease_over", 0.0, None
    )  # fmt: skip
    assert 0 < costs.spent_usd == row.spent_usd < row.budget_usd


def hide(site: RunPodSite) -> None:
    """Make the provider list no instance although it runs."""
    site.spoilt["list"] = lambda _answer: {"pods": []}
    site.fail("instance", Fault("status", status=404), times=2)


async def reboot_and_advance(workspace: Workspace) -> None:
    """Kill the timer, as a reboot does; the next step starts it again."""
    (instance,) = workspace.control.instances.all()
    host = open_host(workspace, instance.host)
    root = await host.root()
    await host.disconnect()
    (timer,) = timers(root)
    kill(timer)
    wait_until(lambda: not is_locked(Path(root, ".lease.lock")), "the timer's end")
    workspace.control.instances.change(instance.tag, timer_checked_t=0.0)
    await advance_instance(workspace, instance.tag)
    assert len(timers(root)) == 1


def timers(root: str) -> list[int]:
    """The timer processes of a root's lease."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[1:-1] == ["-m", "trainer_runtime", "lease", root]:
                found.append(int(folder.name))
    return found


async def shorten(workspace: Workspace, instance: str) -> None:
    """Write a lease that ends soon, without a connection that its end would break."""
    rented = workspace.control.instances.find(instance)
    assert rented is not None
    host = open_host(workspace, rented.host)
    lease, root = await read_lease(host), await host.root()
    assert lease is not None
    assert (await write_lease(host, lease)).can_self_terminate
    await host.disconnect()
    end_t = time.time() + 2.0
    workspace.control.instances.change(instance, lease_end_t=end_t)
    write_json(Path(root, LEASE), replace(lease, end_t=end_t).to_dict())


@pytest.mark.long  # tests/machines/renting: test_idle, test_drain
def test_an_idle_instance_is_released_automatically(renter: Renter) -> None:
    answer = provision_ready(renter)
    (one,) = renter.site.alive
    hide(renter.site)
    did = (renter.do(reconcile).did or {})[answer.instance]  # as with the key of another account
    assert did[0].startswith("INVALID_RESPONSE")
    renter.site.spoilt.clear()
    renter.do(reboot_and_advance)

    (instance,) = renter.instances()

    async def released(workspace: Workspace, after_minutes: float) -> dict[str, str]:
        return release_due(
            workspace, instance.ready_t + 60.0 * after_minutes, Failures(workspace.home)
        )

    assert renter.site.alive == [one]
    assert renter.do(lambda workspace: released(workspace, 29)) == {}
    assert renter.do(lambda workspace: released(workspace, 31)) == {instance.tag: IDLE}
    ended = wait_until(
        lambda: [one for one in renter.instances() if one.state is RentState.ENDED], "its end"
    )
    assert [one.end_reason for one in ended] == [IDLE]
    assert renter.site.alive == []
