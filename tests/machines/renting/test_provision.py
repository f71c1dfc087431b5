"""Boxes on record and at their provider, step by step: what is adopted, closed, ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.machines.rental_home import Renter, intended, silent_renter
from support.providers.site import Fault

from trainmaster.machines.clouds import BoxRequest, Wanted, open_cloud
from trainmaster.machines.renting.instances import advance_box
from trainmaster.machines.renting.keys import rented_key
from trainmaster.machines.renting.reconcile import reconcile
from trainmaster.machines.renting.release import release
from trainmaster.store.control.instances import RentedBox, RentState
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.rentals import ReconcileAnswer
from trainmaster.words.confirmation import agreed
from trainmaster.words.errors import CloudError
from trainmaster.words.paths import Home
from trainmaster.words.settings import read_settings

LOST = Fault("lost")
LOST_AFTERWARDS = Fault("lost", after=True)


@pytest.fixture
def renter(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renter]:
    yield from silent_renter(home, monkeypatch)


def intend(renter: Renter, **bounds: float) -> str:
    """Put an intent on record, as `provision` does before anybody is asked for a box."""

    return renter.do(lambda workspace: intended(workspace, renter, bounds))


def step(renter: Renter, tag: str) -> RentedBox:
    """The box after one step, whether or not its provider gave an answer."""

    async def stepped(workspace: Workspace) -> RentedBox:
        with suppress(CloudError):
            await advance_box(workspace, tag)
        return on_record(workspace, tag)

    return renter.do(stepped)


def on_record(workspace: Workspace, tag: str) -> RentedBox:
    found = workspace.control.boxes.box(tag)
    assert found is not None
    return found


def note(renter: Renter, tag: str, **columns: Any) -> None:
    async def noted(workspace: Workspace) -> None:
        workspace.control.boxes.change(tag, **columns)

    renter.do(noted)


def look(renter: Renter) -> ReconcileAnswer:
    return renter.do(reconcile)


def test_a_box_whose_reply_was_lost_is_found_by_its_tag(renter: Renter) -> None:
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
    assert step(renter, tag).open  # it may show up yet
    note(renter, tag, body={"asked_t": time.time() - 500})
    closed = step(renter, tag)
    assert (closed.state, closed.body["reason"]) == (RentState.ENDED, "not_created")
    assert renter.site.count("create") == 1


def test_a_box_that_comes_after_its_record_was_closed_is_ended(renter: Renter) -> None:
    renter.site.modes.listed_late = 2
    tag = intend(renter)
    renter.site.fail("create", LOST_AFTERWARDS)
    step(renter, tag)
    note(renter, tag, body={"asked_t": time.time() - 500})
    assert step(renter, tag).state is RentState.ENDED
    assert len(renter.site.alive) == 1
    for _ in range(2):
        look(renter)
    assert renter.site.alive == []


def test_of_two_boxes_with_one_tag_one_stays(renter: Renter) -> None:
    tag = intend(renter)
    step(renter, tag)
    create_behind_our_back(renter, tag)
    assert len(renter.site.alive) == 2
    kept = step(renter, tag)
    assert [box.provider_id for box in renter.site.alive] == [kept.provider_id]


def test_no_capacity_names_what_else_there_is(renter: Renter) -> None:
    tag = intend(renter)
    renter.site.modes.no_capacity = True
    closed = step(renter, tag)
    assert (closed.state, closed.body["error"]["code"]) == (RentState.ENDED, "NO_CAPACITY")
    assert "runpod:nvidia-geforce-rtx-4090:1x:community" in closed.body["error"]["fix"]


@pytest.mark.parametrize("factor", ["price_factor", "cost_factor"])
def test_a_box_that_costs_more_than_its_quote_is_not_kept(renter: Renter, factor: str) -> None:
    tag = intend(renter)
    setattr(renter.site.modes, factor, 1.5)
    renter.site.fail("create", LOST_AFTERWARDS)
    for _ in range(4):
        closed = step(renter, tag)
    assert (closed.state, closed.body["reason"]) == (RentState.ENDED, "PRICE_ABOVE_QUOTE")
    assert renter.site.alive == []


def test_a_box_that_does_not_boot_is_given_back(renter: Renter) -> None:
    tag = intend(renter, boot_s=0.0)
    for _ in range(3):
        closed = step(renter, tag)
    assert (closed.state, closed.body["error"]["code"]) == (RentState.ENDED, "BOX_DID_NOT_BOOT")
    assert renter.site.alive == []


def test_a_box_that_is_gone_is_closed_and_a_provider_that_is_silent_closes_none(
    renter: Renter,
) -> None:
    tag = intend(renter, gone_s=0.0)
    step(renter, tag)
    assert step(renter, tag).state is RentState.CREATED  # it was seen
    renter.site.alive[0].end()
    key, renter.site.account_key = renter.site.account_key, "another-key-2718281828"
    assert "CLOUD_KEY_REFUSED" in (look(renter).not_asked or {})["runpod"]
    assert renter.boxes()[0].open
    renter.site.account_key = key
    look(renter)
    assert (renter.boxes()[0].state, renter.boxes()[0].body["reason"]) == (RentState.ENDED, "gone")


def test_a_provider_that_lists_nothing_for_a_moment_loses_no_box(renter: Renter) -> None:
    tag = intend(renter, gone_s=0.0)
    step(renter, tag)
    step(renter, tag)  # it was seen
    answers = iter([{"pods": []}])
    renter.site.spoilt["list"] = lambda answer: next(answers, answer)
    renter.site.fail("box", Fault("status", status=404))
    assert step(renter, tag).state is RentState.CREATED
    assert next(answers, None) is None
    assert len(renter.site.alive) == 1


def test_a_key_that_is_none_any_more_is_told_and_keeps_no_box_from_its_end(
    renter: Renter,
) -> None:
    tag = intend(renter, boot_s=0.0)
    step(renter, tag)
    Home(renter.home).rented_key.write_text("no key")
    renter.site.modes.has_sshd = True  # so that its address is told
    for _ in range(3):
        closed = step(renter, tag)
    assert (closed.state, closed.body["reason"]) == (RentState.ENDED, "BOX_DID_NOT_BOOT")
    assert "SECRET_INVALID" in closed.body["waits_for"]


def test_a_box_that_can_not_be_ended_stays_on_record_until_it_is_gone(renter: Renter) -> None:
    tag = intend(renter)
    step(renter, tag)
    note(renter, tag, state=RentState.RELEASING)
    key, renter.site.account_key = renter.site.account_key, "another-key-2718281828"
    assert step(renter, tag).state is RentState.RELEASING
    renter.site.account_key = key
    assert step(renter, tag).state is RentState.ENDED
    assert renter.site.alive == []


def test_a_lease_that_is_over_ends_its_box(renter: Renter) -> None:
    tag = intend(renter)
    step(renter, tag)
    note(renter, tag, lease_end_t=time.time() - 1)
    step(renter, tag)
    closed = step(renter, tag)
    assert (closed.state, closed.body["reason"]) == (RentState.ENDED, "lease_over")
    assert renter.site.alive == []


def test_a_stray_is_shown_and_can_be_given_back(renter: Renter) -> None:
    create_behind_our_back(renter, "tm-0a1b2c-abcdef")
    strays = look(renter).strays
    assert strays is not None
    assert [(one.box, one.of_this_home) for one in strays] == [("tm-0a1b2c-abcdef", False)]
    answer = renter.do(lambda workspace: release(workspace, "tm-0a1b2c-abcdef", confirm=agreed))
    assert answer.state == "ended"
    assert renter.site.alive == []
    with pytest.raises(CloudError, match="BOX_UNKNOWN"):
        renter.do(lambda workspace: release(workspace, "tm-0a1b2c-abcdef", confirm=agreed))


def create_behind_our_back(renter: Renter, tag: str) -> None:
    async def created(workspace: Workspace) -> None:
        settings = read_settings(workspace.home)
        cloud = open_cloud("runpod", workspace.home, settings, renter.environment)
        try:
            (offer, *_) = await cloud.offers(Wanted(disk_gib=50))
            key = rented_key(workspace.home).public
            await cloud.create(offer, BoxRequest(tag, key, 50, offer.usd_per_h))
        finally:
            await cloud.disconnect()

    renter.do(created)
