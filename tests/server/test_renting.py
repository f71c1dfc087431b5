"""Boxes on record and at their provider, step by step: what is refused, adopted, closed, ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from providers.runpod_site import RunPodSite
from providers.site import Fault
from renting import OFFERS, Renter, renting
from running import small_spec

from trainmaster.cloud_answers import ReconcileAnswer
from trainmaster.clouds import BoxRequest, Offer, Wanted, open_cloud
from trainmaster.confirmation import Quote, agreed
from trainmaster.control_boxes import RentedBox, RentState
from trainmaster.errors import CloudError, PlanError, SpendError, TrainmasterError
from trainmaster.paths import Home
from trainmaster.renting.boxes import advance_box
from trainmaster.renting.keys import rented_key
from trainmaster.renting.opening import in_time
from trainmaster.renting.provision import provision
from trainmaster.renting.reconcile import reconcile
from trainmaster.renting.release import release
from trainmaster.renting.steps import Bounds
from trainmaster.renting.tags import home_of, new_tag
from trainmaster.settings import read_settings
from trainmaster.workspace import Workspace, open_workspace

LOST = Fault("lost")
LOST_AFTERWARDS = Fault("lost", after=True)


@pytest.fixture
def renter(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renter]:
    """Its boxes answer nobody: what is tried here comes before that."""
    with RunPodSite() as site, renting(home, site, monkeypatch) as rented:
        site.modes.has_sshd = False
        yield rented


def intend(renter: Renter, **bounds: float) -> str:
    """Put an intent on record, as `provision` does before anybody is asked for a box."""

    return renter.do(lambda workspace: intended(workspace, renter, bounds))


async def intended(workspace: Workspace, renter: Renter, bounds: Mapping[str, float]) -> str:
    settings = read_settings(workspace.home)
    cloud = open_cloud("runpod", workspace.home, settings, renter.environment)
    try:
        offer = await cloud.offer(OFFERS["runpod"].partition(":")[2], 50)
    finally:
        await cloud.disconnect()
    assert offer is not None
    return workspace.control.boxes.add(intent(workspace, offer, bounds)).tag


def intent(workspace: Workspace, offer: Offer, bounds: Mapping[str, float]) -> RentedBox:
    now = time.time()
    request = {"disk_gib": 50, "max_usd_per_h": offer.usd_per_h, "image": None, "region": None}
    return RentedBox(
        tag=new_tag(workspace.control.boxes.home_id()),
        host="gpu",
        provider="runpod",
        state=RentState.INTENDED,
        provider_id=None,
        intended_t=now,
        lease_end_t=now + 3600,
        usd_per_h=offer.usd_per_h,
        budget_usd=offer.usd_per_h,
        body={
            "offer": offer.to_dict(),
            "request": request,
            "own_timer": "",
            "bounds": Bounds(**bounds).to_dict(),
        },
    )


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


def refusal(renter: Renter, **wishes: Any) -> TrainmasterError:
    """Why nothing is rented; nobody is asked, and nothing is created."""

    async def never(_quote: Quote) -> str:
        raise AssertionError("asked though it is refused")

    with pytest.raises(TrainmasterError) as caught:
        renter.do(
            lambda workspace: provision(
                workspace, OFFERS["runpod"], **{"hours": 1.0, "confirm": never, **wishes}
            )
        )
    assert renter.boxes() == []
    assert renter.site.count("create") == 0
    return caught.value


@pytest.mark.parametrize(
    ("setting", "hours"),
    [("max_usd_h: 0.5", 1.0), ("max_hours: 2", 3.0), ("max_usd_total: 1", 2.0)],
)
def test_a_cap_is_named_before_anybody_is_asked(renter: Renter, setting: str, hours: float) -> None:
    settings = renter.home / "settings.yaml"
    settings.write_text(f"{settings.read_text()}{setting}\n")
    refused = refusal(renter, hours=hours)
    assert isinstance(refused, SpendError)
    assert (refused.code, refused.field) == ("SPEND_CAP", setting.partition(":")[0])


def test_what_open_leases_may_still_come_to_counts_in_the_moment_of_the_intent(
    renter: Renter,
) -> None:
    (renter.home / "settings.yaml").write_text(
        f"cloud_urls: {{runpod: '{renter.site.url}'}}\nmax_usd_total: 1.0\n"
    )

    async def two_at_once(quote: Quote) -> str:
        with open_workspace(renter.environment) as other:  # since the caps were looked at
            await intended(other, renter, {})
        return await agreed(quote)

    with pytest.raises(SpendError, match="SPEND_CAP"):
        renter.do(
            lambda workspace: provision(workspace, OFFERS["runpod"], hours=1.0, confirm=two_at_once)
        )
    assert [box.host for box in renter.boxes()] == ["gpu"]


def test_a_disk_that_is_too_small_for_the_spec_is_refused(renter: Renter, tmp_path: Path) -> None:
    spec = small_spec(tmp_path, model="{preset: gpt2-124m}", checkpoint="{every: 20}")
    refused = refusal(renter, disk_gib=1.0, spec=spec)
    assert isinstance(refused, PlanError)
    assert refused.code == "DISK_TOO_SMALL"


@pytest.mark.parametrize(
    ("wishes", "code", "field"),
    [
        ({"hours": 1e-7}, "BAD_ARGUMENT", "hours"),
        ({"hours": float("inf")}, "BAD_ARGUMENT", "hours"),
        ({"disk_gib": float("inf")}, "BAD_ARGUMENT", "disk_gib"),
        ({"disk_gib": float("nan")}, "BAD_ARGUMENT", "disk_gib"),
        ({"image": "an/image\nRent nothing: 0 $"}, "BAD_ARGUMENT", "image"),
        ({"image": "--privileged"}, "BAD_ARGUMENT", "image"),
        ({"region": "EU\u202e"}, "BAD_ARGUMENT", "region"),
        ({"name": "tm-abcdef-aaaaaa"}, "UNSAFE_NAME", "name"),
        ({"name": "../settings"}, "UNSAFE_NAME", "name"),
    ],
)
def test_odd_wishes_are_refused_before_the_provider_is_asked(
    renter: Renter, wishes: dict[str, Any], code: str, field: str
) -> None:
    refused = refusal(renter, **wishes)
    assert (refused.code, refused.field) == (code, field)
    assert renter.site.count("offers") == 0


def test_an_approval_is_for_the_image_and_the_region_that_it_tells(renter: Renter) -> None:
    def quoted(**wishes: Any) -> Quote:
        quotes: list[Quote] = []

        async def declining(quote: Quote) -> str:
            quotes.append(quote)
            raise SpendError("CONFIRMATION_DECLINED", "No.", "Ask again.")

        with pytest.raises(SpendError):
            renter.do(
                lambda workspace: provision(
                    workspace, OFFERS["runpod"], hours=2, confirm=declining, **wishes
                )
            )
        return quotes[0]

    plain, imaged = quoted(), quoted(image="org/odd:1", region="EU-RO")
    assert "image org/odd:1, region EU-RO" in imaged.text
    assert plain.asked != imaged.asked
    assert plain.asked == quoted().asked  # though no box is called like the other


def test_a_box_of_another_home_is_not_taken_for_one_that_is_called_like_it(renter: Renter) -> None:
    other = "tm-abcdef-aaaaaa"

    async def both(workspace: Workspace) -> ReconcileAnswer:
        settings = read_settings(workspace.home)
        cloud = open_cloud("runpod", workspace.home, settings, renter.environment)
        offer = await cloud.offer(OFFERS["runpod"].partition(":")[2], 50)
        assert offer is not None
        ended = replace(intent(workspace, offer, {}), host=other, ended_t=time.time())
        workspace.control.boxes.add(replace(ended, state=RentState.ENDED))
        await cloud.create(offer, BoxRequest(other, "ssh-ed25519 AAAA", 50, offer.usd_per_h))
        await cloud.disconnect()
        return await reconcile(workspace)

    found = renter.do(both)
    assert [stray.box for stray in found.strays or ()] == [other]
    assert len(renter.site.alive) == 1


def test_a_provider_that_hangs_is_waited_for_no_longer_than_a_call_may_take() -> None:
    async def forever() -> None:
        await asyncio.sleep(1e6)

    with pytest.raises(CloudError, match="runpod gave no answer") as caught:
        asyncio.run(in_time("runpod", forever(), within_s=0.01))
    assert (caught.value.code, caught.value.retryable) == ("CLOUD_UNREACHABLE", True)


def test_a_quote_tells_price_lease_timer_and_what_is_lost(renter: Renter) -> None:
    quotes: list[Quote] = []

    async def declining(quote: Quote) -> str:
        quotes.append(quote)
        raise SpendError("CONFIRMATION_DECLINED", "No.", "Ask again.")

    for _ in range(2):
        with pytest.raises(SpendError, match="CONFIRMATION_DECLINED"):
            renter.do(
                lambda workspace: provision(workspace, OFFERS["runpod"], hours=2, confirm=declining)
            )
    quote, again = quotes
    assert quote == again  # nothing in it is made up anew
    assert quote.usd == pytest.approx(2 * 0.697, abs=0.01)
    for told in ("RTX 4090", "0.70 $/h", "at most 2 h", "1.39 $ in all", "own timer", "is lost"):
        assert told in quote.text
    assert renter.boxes() == []


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


def test_a_home_makes_one_key_and_keeps_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    made = rented_key(home)
    assert made == rented_key(home)
    assert made.private.stat().st_mode & 0o777 == 0o600
    assert made.public.startswith("ssh-ed25519 ")


def test_a_tag_tells_its_home_and_nothing_else_is_one() -> None:
    assert home_of(new_tag("0a1b2c")) == "0a1b2c"
    assert [home_of(name) for name in ("", "tm-x", "tm-0a1b2c-abcdef-2", "my-pod")] == [None] * 4


def create_behind_our_back(renter: Renter, tag: str) -> None:
    async def created(workspace: Workspace) -> None:
        settings = read_settings(workspace.home)
        cloud = open_cloud("runpod", workspace.home, settings, renter.environment)
        try:
            (offer, *_) = await cloud.offers(Wanted(disk_gib=50))
            key = rented_key(workspace.home).public
            await cloud.create(replace(offer), BoxRequest(tag, key, 50, offer.usd_per_h))
        finally:
            await cloud.disconnect()

    renter.do(created)
