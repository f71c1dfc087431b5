"""Requests for an instance: refusals before the user is asked, quotes, and keys."""

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

from trainmaster.answers.rentals import ReconcileAnswer
from trainmaster.errors.confirmation import Quote, agreed
from trainmaster.errors.errors import CloudError, PlanError, SpendError, TrainmasterError
from trainmaster.home.paths import Home
from trainmaster.machines.clouds import InstanceRequest, open_cloud
from trainmaster.machines.renting.factory import with_timeout
from trainmaster.machines.renting.provision import ProvisionRequest, provision
from trainmaster.machines.renting.reconcile import reconcile
from trainmaster.machines.renting.ssh_key import rented_key
from trainmaster.machines.renting.volume_request import home_of, new_tag
from trainmaster.settings.settings import read_settings
from trainmaster.store.control.instances import RentState
from trainmaster.sync.workspace import Workspace, open_workspace

TWO_HOURS = ProvisionRequest(OFFERS["runpod"], 2.0)


@pytest.fixture
def renter(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renter]:
    yield from silent_renter(home, monkeypatch)


def refusal(renter: Renter, **options: Any) -> TrainmasterError:
    """Why the request is refused; the user is not asked, and nothing is created."""

    async def never(_quote: Quote) -> str:
        raise AssertionError("asked although it is refused")

    request = ProvisionRequest(OFFERS["runpod"], **{"hours": 1.0, **options})
    with pytest.raises(TrainmasterError) as caught:
        renter.do(lambda workspace: provision(workspace, request, confirm=never))
    assert renter.instances() == []
    assert renter.site.count("create") == 0
    return caught.value


@pytest.mark.parametrize(
    ("setting", "hours"),
    [("max_usd_h: 0.5", 1.0), ("max_hours: 2", 3.0), ("max_usd_total: 1", 2.0)],
)
def test_a_cap_refuses_before_the_user_is_asked(renter: Renter, setting: str, hours: float) -> None:
    settings = renter.home / "settings.yaml"
    settings.write_text(f"{settings.read_text()}{setting}\n")
    refused = refusal(renter, hours=hours)
    assert isinstance(refused, SpendError)
    assert (refused.code, refused.field) == ("SPEND_CAP", setting.partition(":")[0])


def test_committed_costs_count_when_the_intent_is_recorded(
    renter: Renter,
) -> None:
    (renter.home / "settings.yaml").write_text(
        f"cloud_urls: {{runpod: '{renter.site.url}'}}\nmax_usd_total: 2.0\n"
    )

    async def two_at_once(quote: Quote) -> str:
        with open_workspace(renter.environment) as other:  # after the caps were checked
            await intended(other, renter, {})
        return await agreed(quote)

    with pytest.raises(SpendError, match="SPEND_CAP"):
        renter.do(lambda workspace: provision(workspace, TWO_HOURS, confirm=two_at_once))
    assert [instance.host for instance in renter.instances()] == ["gpu"]


def test_a_disk_that_is_too_small_for_the_spec_is_refused(renter: Renter, tmp_path: Path) -> None:
    spec = small_spec(tmp_path, model="{preset: gpt2-124m}", checkpoint="{every: 20}")
    refused = refusal(renter, disk_gib=1.0, spec=spec)
    assert isinstance(refused, PlanError)
    assert refused.code == "DISK_TOO_SMALL"


@pytest.mark.parametrize(
    ("options", "code", "field"),
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
def test_invalid_options_are_refused_before_the_provider_is_asked(
    renter: Renter, options: dict[str, Any], code: str, field: str
) -> None:
    refused = refusal(renter, **options)
    assert (refused.code, refused.field) == (code, field)
    assert renter.site.count("offers") == 0


def test_an_approval_covers_only_the_quoted_image_and_region(renter: Renter) -> None:
    def quoted(**options: Any) -> Quote:
        quotes: list[Quote] = []

        async def declining(quote: Quote) -> str:
            quotes.append(quote)
            raise SpendError("CONFIRMATION_DECLINED", "No.", "Ask again.")

        with pytest.raises(SpendError):
            renter.do(
                lambda workspace: provision(
                    workspace, replace(TWO_HOURS, **options), confirm=declining
                )
            )
        return quotes[0]

    plain, imaged = quoted(), quoted(image="org/odd:1", region="EU-RO")
    assert "image org/odd:1, region eu-ro" in imaged.text
    assert plain.asked != imaged.asked
    assert plain.asked == quoted().asked  # although generated host names differ


def test_a_host_named_like_another_homes_tag_does_not_hide_the_orphan(
    renter: Renter,
) -> None:
    other = "tm-abcdef-aaaaaa"

    async def both(workspace: Workspace) -> ReconcileAnswer:
        settings = read_settings(workspace.home)
        cloud = open_cloud("runpod", workspace.home, settings, renter.environment)
        offer = await cloud.offer(OFFERS["runpod"].partition(":")[2], 50)
        assert offer is not None
        ended = replace(intent(workspace, offer, {}), host=other, ended_t=time.time())
        workspace.control.instances.add(replace(ended, state=RentState.ENDED))
        await cloud.create(offer, InstanceRequest(other, "ssh-ed25519 AAAA", 50, offer.usd_per_h))
        await cloud.disconnect()
        return await reconcile(workspace)

    found = renter.do(both)
    assert [orphan.instance for orphan in found.orphans or ()] == [other]
    assert len(renter.site.alive) == 1


def test_a_hanging_provider_is_bounded_by_the_calls_timeout() -> None:
    async def forever() -> None:
        await asyncio.sleep(1e6)

    with pytest.raises(CloudError, match="runpod gave no answer") as caught:
        asyncio.run(with_timeout("runpod", forever(), within_s=0.01))
    assert (caught.value.code, caught.value.retryable) == ("CLOUD_UNREACHABLE", True)


def test_a_quote_states_price_lease_timer_and_losses(renter: Renter) -> None:
    quotes: list[Quote] = []

    async def declining(quote: Quote) -> str:
        quotes.append(quote)
        raise SpendError("CONFIRMATION_DECLINED", "No.", "Ask again.")

    for _ in range(2):
        with pytest.raises(SpendError, match="CONFIRMATION_DECLINED"):
            renter.do(lambda workspace: provision(workspace, TWO_HOURS, confirm=declining))
    quote, again = quotes
    assert timeless(quote) == timeless(again)  # nothing else in it varies
    assert quote.usd == pytest.approx(2 * 0.697, abs=0.01)
    for part in (
        "1 x NVIDIA 4090 with 24 GiB",
        "$0.70/h",
        "at most 2 h",
        "$1.39 in total",
        "own timer",
        "is lost",
    ):
        assert part in quote.text
    assert renter.instances() == []


def timeless(quote: Quote) -> Quote:
    """The quote without the time at which its lease would end."""
    text, times = re.subn(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "then", quote.text)
    assert times == 1
    return replace(quote, text=text)


def test_a_home_creates_one_key_and_keeps_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    made = rented_key(home)
    assert made == rented_key(home)
    assert made.private.stat().st_mode & 0o777 == 0o600
    assert made.public.startswith("ssh-ed25519 ")


def test_a_tag_contains_its_home_and_other_names_are_not_tags() -> None:
    assert home_of(new_tag("0a1b2c")) == "0a1b2c"
    assert [home_of(name) for name in ("", "tm-x", "tm-0a1b2c-abcdef-2", "my-pod")] == [None] * 4
