"""Asking for a box: what is refused before anybody is asked, and what a quote and a key tell."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.machines.rental_home import OFFERS, Renter, intended, intent, silent_renter
from support.runs.running_run import small_spec

from trainmaster.machines.clouds import BoxRequest, open_cloud
from trainmaster.machines.renting.factory import in_time
from trainmaster.machines.renting.keys import rented_key
from trainmaster.machines.renting.provision import provision
from trainmaster.machines.renting.reconcile import reconcile
from trainmaster.machines.renting.tags import home_of, new_tag
from trainmaster.store.control.instances import RentState
from trainmaster.sync.workspace import Workspace, open_workspace
from trainmaster.words.answers.rentals import ReconcileAnswer
from trainmaster.words.confirmation import Quote, agreed
from trainmaster.words.errors import CloudError, PlanError, SpendError, TrainmasterError
from trainmaster.words.paths import Home
from trainmaster.words.settings import read_settings


@pytest.fixture
def renter(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renter]:
    yield from silent_renter(home, monkeypatch)


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
    assert timeless(quote) == timeless(again)  # nothing else in it is made up anew
    assert quote.usd == pytest.approx(2 * 0.697, abs=0.01)
    for told in ("RTX 4090", "0.70 $/h", "at most 2 h", "1.39 $ in all", "own timer", "is lost"):
        assert told in quote.text
    assert renter.boxes() == []


def timeless(quote: Quote) -> Quote:
    """Without the moment at which a lease that begins now would end."""
    text, times = re.subn(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", "then", quote.text)
    assert times == 1
    return replace(quote, text=text)


def test_a_home_makes_one_key_and_keeps_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    made = rented_key(home)
    assert made == rented_key(home)
    assert made.private.stat().st_mode & 0o777 == 0o600
    assert made.public.startswith("ssh-ed25519 ")


def test_a_tag_tells_its_home_and_nothing_else_is_one() -> None:
    assert home_of(new_tag("0a1b2c")) == "0a1b2c"
    assert [home_of(name) for name in ("", "tm-x", "tm-0a1b2c-abcdef-2", "my-pod")] == [None] * 4
