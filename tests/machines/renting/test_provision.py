"""Lifecycle steps of instances: which are adopted, closed or ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.machines.rental_home import Renter, intended, silent_renter
from support.providers.site import Fault

from trainmaster.answers.rentals import ReconcileAnswer
from trainmaster.errors.confirmation import agreed
from trainmaster.errors.errors import CloudError
from trainmaster.home.paths import Home
from trainmaster.machines.clouds import InstanceRequest, Wanted, open_cloud
from trainmaster.machines.renting.instances import advance_instance
from trainmaster.machines.renting.reconcile import reconcile
from trainmaster.machines.renting.release import release
from trainmaster.machines.renting.ssh_key import rented_key
from trainmaster.settings.settings import read_settings
from trainmaster.store.control.instances import RentedInstance, RentState
from trainmaster.sync.workspace import Workspace

LOST = Fault("lost")
LOST_AFTERWARDS = Fault("lost", after=True)


@pytest.fixture
def renter(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renter]:
    yield from silent_renter(home, monkeypatch)


def intend(renter: Renter, **timeouts: float) -> str:
    """Record an intent, as `provision` does before it asks the provider."""
    return renter.do(lambda workspace: intended(workspace, renter, timeouts))


def step(renter: Renter, tag: str) -> RentedInstance:
    """The instance after one step, which may fail."""

    async def stepped(workspace: Workspace) -> RentedInstance:
        with suppress(CloudError):
            await advance_instance(workspace, tag)
        return on_record(workspace, tag)

    return renter.do(stepped)


def on_record(workspace: Workspace, tag: str) -> RentedInstance:
    found = workspace.control.instances.find(tag)
    assert found is not None
    return found


def change(renter: Renter, tag: str, **columns: Any) -> None:
    async def changed(workspace: Workspace) -> None:
        workspace.control.instances.change(tag, **columns)

    renter.do(changed)


def reconciled(renter: Renter) -> ReconcileAnswer:
    return renter.do(reconcile)


def test_an_instance_whose_reply_was_lost_is_found_by_its_tag(renter: Renter) -> None:
    tag = intend(renter)
    renter.site.fail("create", LOST_AFTERWARDS)
    assert step(renter, tag).state is RentState.INTENDED
    found = step(renter, tag)
    assert (found.state, found.provider_id) == (
        RentState.CREATED,
        renter.site.alive[0].provider_id,
    )
    assert renter.site.count("create") == 1


def test_a_request_whose_reply_was_lost_is_never_sent_again(renter: Renter) -> None:
    tag = intend(renter)
    renter.site.fail("create", LOST)
    step(renter, tag)
    assert step(renter, tag).open  # it may still appear
    change(renter, tag, create_requested_t=time.time() - 500)
    closed = step(renter, tag)
    assert (closed.state, closed.end_reason) == (RentState.ENDED, "not_created")
    assert renter.site.count("create") == 1


def test_an_instance_that_appears_after_its_record_was_closed_is_ended(renter: Renter) -> None:
    renter.site.modes.listed_late = 2
    tag = intend(renter)
    renter.site.fail("create", LOST_AFTERWARDS)
    step(renter, tag)
    change(renter, tag, create_requested_t=time.time() - 500)
    assert step(renter, tag).state is RentState.ENDED
    assert len(renter.site.alive) == 1
    for _ in range(2):
        reconciled(renter)
    assert renter.site.alive == []


def test_of_two_instances_with_one_tag_one_is_kept(renter: Renter) -> None:
    tag = intend(renter)
    step(renter, tag)
    create_without_record(renter, tag)
    assert len(renter.site.alive) == 2
    kept = step(renter, tag)
    assert [instance.provider_id for instance in renter.site.alive] == [kept.provider_id]


def test_no_capacity_names_what_else_there_is(renter: Renter) -> None:
    tag = intend(renter)
    renter.site.modes.no_capacity = True
    closed = step(renter, tag)
    assert (closed.state, closed.end_error.code) == (RentState.ENDED, "NO_CAPACITY")
    assert "runpod:nvidia-geforce-rtx-4090:1x:community" in closed.end_error.fix


@pytest.mark.parametrize("factor", ["price_factor", "cost_factor"])
def test_an_instance_above_its_quote_is_released(renter: Renter, factor: str) -> None:
    tag = intend(renter)
    setattr(renter.site.modes, factor, 1.5)
    renter.site.fail("create", LOST_AFTERWARDS)
    for _ in range(4):
        closed = step(renter, tag)
    assert (closed.state, closed.end_reason) == (RentState.ENDED, "PRICE_ABOVE_QUOTE")
    assert renter.site.alive == []


def test_an_instance_that_does_not_boot_is_released(renter: Renter) -> None:
    tag = intend(renter, boot_s=0.0)
    for _ in range(3):
        closed = step(renter, tag)
    assert (closed.state, closed.end_error.code) == (
        RentState.ENDED,
        "INSTANCE_DID_NOT_BOOT",
    )
    assert renter.site.alive == []


def test_a_missing_instance_is_closed_and_a_failing_provider_closes_none(
    renter: Renter,
) -> None:
    tag = intend(renter, gone_s=0.0)
    step(renter, tag)
    assert step(renter, tag).state is RentState.CREATED  # it was seen
    renter.site.alive[0].end()
    key, renter.site.account_key = renter.site.account_key, "another-key-2718281828"
    assert "CLOUD_KEY_REFUSED" in (reconciled(renter).not_asked or {})["runpod"]
    assert renter.instances()[0].open
    renter.site.account_key = key
    reconciled(renter)
    assert (renter.instances()[0].state, renter.instances()[0].end_reason) == (
        RentState.ENDED,
        "gone",
    )


def test_one_empty_list_closes_no_instance(renter: Renter) -> None:
    tag = intend(renter, gone_s=0.0)
    step(renter, tag)
    step(renter, tag)  # it was seen
    answers = iter([{"pods": []}])
    renter.site.spoilt["list"] = lambda answer: next(answers, answer)
    renter.site.fail("instance", Fault("status", status=404))
    assert step(renter, tag).state is RentState.CREATED
    assert next(answers, None) is None
    assert len(renter.site.alive) == 1


def test_a_damaged_private_key_is_reported_and_does_not_prevent_the_end(
    renter: Renter,
) -> None:
    tag = intend(renter, boot_s=0.0)
    step(renter, tag)
    Home(renter.home).rented_key.write_text("no key")
    renter.site.modes.has_sshd = True  # so that it has an address
    for _ in range(3):
        closed = step(renter, tag)
    assert (closed.state, closed.end_reason) == (RentState.ENDED, "INSTANCE_DID_NOT_BOOT")
    assert "SECRET_INVALID" in closed.boot_problem


def test_an_instance_that_can_not_be_ended_stays_open_until_it_has_ended(renter: Renter) -> None:
    tag = intend(renter)
    step(renter, tag)
    change(renter, tag, state=RentState.RELEASING)
    key, renter.site.account_key = renter.site.account_key, "another-key-2718281828"
    assert step(renter, tag).state is RentState.RELEASING
    renter.site.account_key = key
    assert step(renter, tag).state is RentState.ENDED
    assert renter.site.alive == []


def test_an_ended_lease_ends_its_instance(renter: Renter) -> None:
    tag = intend(renter)
    step(renter, tag)
    change(renter, tag, lease_end_t=time.time() - 1)
    step(renter, tag)
    closed = step(renter, tag)
    assert (closed.state, closed.end_reason) == (RentState.ENDED, "lease_over")
    assert renter.site.alive == []


def test_an_orphan_is_listed_and_can_be_released(renter: Renter) -> None:
    create_without_record(renter, "tm-0a1b2c-abcdef")
    orphans = reconciled(renter).orphans
    assert orphans is not None
    assert [(one.instance, one.of_this_home) for one in orphans] == [("tm-0a1b2c-abcdef", False)]
    answer = renter.do(lambda workspace: release(workspace, "tm-0a1b2c-abcdef", confirm=agreed))
    assert answer.state == "ended"
    assert renter.site.alive == []
    with pytest.raises(CloudError, match="INSTANCE_UNKNOWN"):
        renter.do(lambda workspace: release(workspace, "tm-0a1b2c-abcdef", confirm=agreed))


def create_without_record(renter: Renter, tag: str) -> None:
    async def created(workspace: Workspace) -> None:
        settings = read_settings(workspace.home)
        cloud = open_cloud("runpod", workspace.home, settings, renter.environment)
        try:
            (offer, *_) = await cloud.offers(Wanted(disk_gib=50))
            key = rented_key(workspace.home).public
            await cloud.create(offer, InstanceRequest(tag, key, 50, offer.usd_per_h))
        finally:
            await cloud.disconnect()

    renter.do(created)
