"""The contract of all provider clients, tested against stand-ins."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.backends.tcp_proxy import free_port
from support.providers.customer import DISK_GIB, SITES, TAG, Customer
from support.providers.runpod_site import RunPodSite
from support.providers.site import Fault, How, Kind, Site
from support.providers.vast_site import VastSite
from support.runs.running_run import wait_until

from trainmaster.backends.ssh.link import open_transport
from trainmaster.machines.clouds import Cloud, Offer, Wanted
from trainmaster.machines.clouds.volumes import listed_volumes
from trainmaster.settings.settings import Settings
from trainmaster.store.host_record import HostRecord

ODD_ID = "../42 ;$(id)\n&-o"
ODD_NAME = "tm-\x1b[31mred\u202e$(id)"


@pytest.fixture(params=list(SITES))
def customer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Customer]:
    """Of a stand-in without sshd, for speed."""
    provider = request.param
    with (
        SITES[provider](has_sshd=False) as site,
        Customer(provider, site, tmp_path) as customer,
    ):
        yield customer


@pytest.fixture
def site(customer: Customer) -> Site:
    return customer.site


@pytest.mark.parametrize("provider", list(SITES))
def test_an_instance_is_created_listed_reached_and_ended(provider: str, tmp_path: Path) -> None:
    with SITES[provider]() as site, Customer(provider, site, tmp_path) as customer:
        _check_lifecycle(customer, site, tmp_path)


def test_offers_are_normalised_and_the_cheapest_comes_first(customer: Customer) -> None:
    offers = customer.offers(gpu="h100", disk_gib=DISK_GIB)
    assert offers and offers == sorted(offers, key=lambda offer: offer.usd_per_h)
    for offer in offers:
        assert (offer.provider, offer.gpu, offer.count) == (customer.provider, "h100", 1)
        assert 1 < offer.usd_per_h < 5 and 75 < (offer.gpu_memory_gib or 0) < 85
        assert offer.source.startswith(customer.site.url)
        assert offer.name == f"{customer.provider}:{offer.offer_id}"
        assert Offer.from_dict(json.loads(json.dumps(offer.to_dict()))) == offer


def test_only_matching_offers_are_listed(customer: Customer) -> None:
    assert {offer.count for offer in customer.offers(gpu="h100", count=8)} == {8}
    one = customer.cheapest()
    assert customer.offers(gpu="h100", disk_gib=DISK_GIB, max_usd_h=one.usd_per_h / 2) == []
    assert customer.offers(gpu="gb200") == []
    assert customer.offers(region="us") != []
    assert {(offer.region or "")[:2].lower() for offer in customer.offers(region="us")} == {"us"}
    assert customer.offers(region="antarctica") == []


def test_an_offer_is_found_by_its_name_at_the_current_price(customer: Customer, site: Site) -> None:
    offer = customer.cheapest()
    site.modes.price_factor = 1.5
    now = customer(lambda cloud: cloud.offer(offer.offer_id, DISK_GIB))
    assert now is not None and now.offer_id == offer.offer_id
    assert now.usd_per_h > offer.usd_per_h * 1.4
    for unknown in ("", "nothing", "9999999", "../pods", "nvidia-h100:1x:moon"):
        assert customer(lambda cloud, name=unknown: cloud.offer(name)) is None  # type: ignore[misc]


def test_offers_that_cannot_be_read_are_left_out_and_counted(
    customer: Customer, site: Site
) -> None:
    odd = [None, 7, "offer", {}, [{}]]

    def spoil(body: Any) -> Any:
        (rows,) = body.values()
        if isinstance(rows, dict):
            return {"data": {**rows, **{f"odd-{n}": row for n, row in enumerate(odd)}}}
        return dict.fromkeys(body, rows + odd)

    async def left_out(cloud: Cloud) -> tuple[int, int]:
        return len(await cloud.offers(Wanted(gpu="h100"))), cloud.left_out

    offers, none = customer(left_out)
    site.spoilt["offers"] = spoil
    lists = site.count("offers")  # one or two, as a provider has them
    assert (none, customer(left_out)) == (0, (offers, lists * len(odd)))


@pytest.mark.parametrize("price", [None, "3.99", -1, float("nan"), float("inf"), True, {}])
def test_offers_with_an_invalid_price_are_left_out(
    customer: Customer, site: Site, price: Any
) -> None:
    names = ("secure", "community", "dph_total", "price_cents_per_hour")

    def spoil(part: Any) -> Any:
        if isinstance(part, dict):
            return {
                name: price if name in names and not isinstance(value, bool) else spoil(value)
                for name, value in part.items()
            }
        return [spoil(item) for item in part] if isinstance(part, list) else part

    site.spoilt["offers"] = spoil
    assert customer.offers(gpu="h100") == []


@pytest.mark.parametrize("how", ["lost", "status", "garbage"])
def test_a_create_without_a_readable_reply_is_never_sent_again(
    customer: Customer, site: Site, how: How
) -> None:
    offer = customer.cheapest()
    site.fail("create", Fault(how, after=True))
    error = customer.refused(lambda cloud: cloud.create(offer, customer.request(offer)))
    assert error.code == ("INVALID_RESPONSE" if how == "garbage" else "CLOUD_UNREACHABLE")
    assert site.count("create") == 1
    assert [instance.tag for instance in customer.instances()] == [TAG]  # found by its tag


@pytest.mark.parametrize("how", ["lost", "status"])
def test_a_create_that_did_not_arrive_leaves_nothing(
    customer: Customer, site: Site, how: How
) -> None:
    offer = customer.cheapest()
    site.fail("create", Fault(how, status=503))
    error = customer.refused(lambda cloud: cloud.create(offer, customer.request(offer)))
    assert (error.code, error.retryable) == ("CLOUD_UNREACHABLE", True)
    assert customer.instances() == [] and site.count("create") == 1


def test_a_rate_limited_create_is_reported_and_not_retried(customer: Customer, site: Site) -> None:
    offer = customer.cheapest()
    site.fail("create", Fault("status", status=429, retry_after="1"))
    error = customer.refused(lambda cloud: cloud.create(offer, customer.request(offer)))
    assert (error.code, error.retryable, site.count("create")) == ("RATE_LIMITED", True, 1)


@pytest.mark.parametrize(
    "fault",
    [Fault("lost"), Fault("lost", after=True), Fault("status"), Fault("status", status=429)],
    ids=["lost", "lost after", "500", "429"],
)
def test_reads_and_ends_are_retried(customer: Customer, site: Site, fault: Fault) -> None:
    provider_id = customer.create()
    for kind in ("offers", "list", "instance", "end"):
        site.fail(kind, fault, times=2)
    assert customer.offers(gpu="h100") != []
    assert [instance.provider_id for instance in customer.instances()] == [provider_id]
    assert customer(lambda cloud: cloud.instance(provider_id)) is not None
    customer(lambda cloud: cloud.end(provider_id))
    assert site.alive == []


def test_retries_are_limited(customer: Customer, site: Site) -> None:
    site.fail("list", Fault("status", status=502), times=9)
    error = customer.refused(lambda cloud: cloud.instances())
    assert (error.code, error.retryable, site.count("list")) == ("CLOUD_UNREACHABLE", True, 3)
    assert "planned by the test" in error.message
    site.fail("instance", Fault("status", status=429, retry_after="3600"), times=9)
    error = customer.refused(lambda cloud: cloud.instance("42"))
    assert (error.code, error.retryable, site.count("instance")) == ("RATE_LIMITED", True, 1)


@pytest.mark.parametrize("kind", ["offers", "list", "instance"])
def test_garbage_is_an_invalid_response(customer: Customer, site: Site, kind: Kind) -> None:
    provider_id = customer.create()
    asks: dict[Kind, Callable[[Cloud], Awaitable[Any]]] = {
        "offers": lambda cloud: cloud.offers(Wanted()),
        "list": lambda cloud: cloud.instances(),
        "instance": lambda cloud: cloud.instance(provider_id),
    }
    site.fail(kind, Fault("garbage"))
    assert customer.refused(asks[kind]).code == "INVALID_RESPONSE"
    for odd in ([], 7, "pods", {"pods": 3, "instances": 3, "data": 3, "offers": {}, "gpus": 1}):
        site.spoilt[kind] = lambda _, body=odd: body  # type: ignore[misc]
        assert customer.refused(asks[kind]).code == "INVALID_RESPONSE", odd


def test_a_list_with_an_instance_without_an_id_is_invalid(customer: Customer, site: Site) -> None:
    """It could be one of this home."""
    customer.create()
    site.spoilt["list"] = _with(id="")
    assert customer.refused(lambda cloud: cloud.instances()).code == "INVALID_RESPONSE"


def test_a_closed_port_is_unreachable(customer: Customer) -> None:
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    customer.settings = Settings.model_validate({"cloud_urls": {customer.provider: url}})
    error = customer.refused(lambda cloud: cloud.instances())
    assert (error.code, error.retryable) == ("CLOUD_UNREACHABLE", True)


def test_a_refused_key_is_named_by_its_variable_alone(customer: Customer, site: Site) -> None:
    (variable,) = customer.environment
    customer.environment[variable] = "not-the-account-key-271828"
    error = customer.refused(lambda cloud: cloud.instances())
    assert error.code == "CLOUD_KEY_REFUSED" and variable in error.message
    assert "https://" in error.fix and "271828" not in str(error)


def test_a_key_is_masked_in_errors_that_repeat_it(customer: Customer, site: Site) -> None:
    site.account_key = "another"
    site.fail("list", Fault("status", status=418, message=f"{'x' * 5000}"))
    error = customer.refused(lambda cloud: cloud.instances())
    assert error.code == "CLOUD_REFUSED" and len(error.message) < 500
    (key,) = customer.environment.values()
    site.fail("list", Fault("status", status=418, message=f"\x1b[31mwho is {key}?\u202e"))
    error = customer.refused(lambda cloud: cloud.instances())
    assert "who is ***?" in error.message and error.message.isprintable()


def test_no_capacity_is_reported_and_nothing_created(customer: Customer, site: Site) -> None:
    site.modes.no_capacity = True
    offer = customer.cheapest()
    error = customer.refused(lambda cloud: cloud.create(offer, customer.request(offer)))
    assert (error.code, site.alive, site.count("create")) == ("NO_CAPACITY", [], 1)
    gone = replace(offer, offer_id="99999")
    error = customer.refused(lambda cloud: cloud.create(gone, customer.request(gone)))
    assert (error.code, site.count("create")) == ("NO_CAPACITY", 1)


def test_a_price_above_the_quote_is_not_paid(customer: Customer, site: Site) -> None:
    offer = customer.cheapest()
    site.modes.price_factor = 1.01
    error = customer.refused(lambda cloud: cloud.create(offer, customer.request(offer)))
    assert (error.code, site.count("create")) == ("PRICE_ABOVE_QUOTE", 0)
    assert customer.create(max_usd_per_h=offer.usd_per_h * 1.1)  # within the agreed price


def test_an_ended_instance_may_be_listed_for_a_while(customer: Customer, site: Site) -> None:
    site.modes.listed_after_end = 2
    provider_id = customer.create()
    customer(lambda cloud: cloud.end(provider_id))
    listings = [len(customer.instances()) for _ in range(3)]
    # A status such as RunPod's TERMINATED counts as ended.
    assert listings in ([1, 1, 0], [0, 0, 0])


def test_a_booting_instance_has_no_address(customer: Customer, site: Site) -> None:
    site.modes.boots_after_reads = 3
    customer.create()
    (instance,) = customer.instances()
    assert (instance.state, instance.address, instance.port) == ("starting", None, None)
    assert wait_until(lambda: customer.instances()[0].address, "an address")


def test_an_unknown_state_hides_no_instance(customer: Customer, site: Site) -> None:
    provider_id = customer.create()
    site.spoilt["list"] = _with(status="MIGRATING", actual_status="MIGRATING")
    (instance,) = customer.instances()
    assert (instance.provider_id, instance.state) == (provider_id, "starting")


def test_hostile_names_of_a_provider_become_neither_path_nor_option(
    customer: Customer, site: Site
) -> None:
    customer.create()
    odd = {"id": ODD_ID, "name": ODD_NAME, "label": ODD_NAME}
    odd |= {"ip": "-oProxyCommand=id", "public_ipaddr": "-oProxyCommand=id", "ssh_host": "a b"}
    odd |= {"host": "$(id)", "username": "-l"}
    site.spoilt["list"] = _with(**odd)
    (instance,) = customer.instances()
    assert instance.provider_id == ODD_ID and instance.tag.isprintable()
    assert instance.address is None and not instance.user.startswith("-")
    asked = len(site.asked)
    customer(lambda cloud: cloud.end(instance.provider_id))
    (ending,) = site.asked[asked:]
    sent = ending.ids[0] if ending.ids else ending.body["instance_ids"][0]
    assert sent == ODD_ID  # one segment of the path, or a value in the body
    assert customer.client().self_termination(ODD_ID) is None


@pytest.mark.parametrize("provider_id", ["", ".", ".."])
def test_an_invalid_id_ends_no_other_resource(
    customer: Customer, site: Site, provider_id: str
) -> None:
    customer.create()
    if customer.provider != "lambda":  # there, ids are in the body
        error = customer.refused(lambda cloud: cloud.end(provider_id))
        assert (error.code, site.count("end")) == ("INVALID_RESPONSE", 0)
    assert len(site.alive) == 1


def _with(**changes: Any) -> Any:
    """A function that replaces the values of these names at any depth."""

    def spoil(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: changes.get(name, spoil(value)) for name, value in part.items()}
        return [spoil(item) for item in part] if isinstance(part, list) else part

    return spoil


def _check_lifecycle(customer: Customer, site: Site, tmp_path: Path) -> None:
    provider_id = customer.create()
    (listed,) = [instance for instance in customer.instances() if instance.tag == TAG]
    assert (listed.provider, listed.provider_id) == (customer.provider, provider_id)
    instance = customer(lambda cloud: cloud.instance(provider_id))
    assert (
        instance is not None and instance.state == "running" and instance.address and instance.port
    )
    known = {"address": instance.address, "port": instance.port, "user": instance.user}
    record = HostRecord("instance", key=str(customer.private_key), root="~/tm", **known)

    async def said(_cloud: Cloud) -> str:
        transport = await open_transport(record, tmp_path / "pins")
        try:
            return (await transport.run(["id", "-un"], timeout_s=20)).output
        finally:
            await transport.disconnect()

    assert customer(said).strip() == instance.user
    for _ in range(2):
        customer(lambda cloud: cloud.end(provider_id))
    assert customer(lambda cloud: cloud.instance(provider_id)) is None
    assert customer.instances() == []
    wait_until(lambda: site.instances[provider_id].sshd is None, "the end of the instance")


def test_all_pages_of_instances_are_read(customer: Customer, site: Site) -> None:
    tags = {f"tm-0a1b2c-22222{number}" for number in range(2, 7)}
    offer = customer.cheapest()
    for tag in tags:
        customer.create(offer, tag=tag)
    if isinstance(site, VastSite | RunPodSite):  # Lambda's list has no pages
        site.page = 2
    assert {instance.tag for instance in customer.instances()} == tags
    assert site.count("list") == (1 if customer.provider == "lambda" else 3)


def test_volumes_are_created_once_listed_on_all_pages_and_deleted_or_there_are_none(
    customer: Customer, site: Site
) -> None:
    if not isinstance(site, RunPodSite):
        assert customer(listed_volumes) == []
        assert customer.refused(_store_of).code == "VOLUME_UNSUPPORTED"
        return
    site.page = 2
    tags = [f"tm-0a1b2c-33333{number}" for number in range(2, 7)]
    ids = [customer(lambda cloud, tag=tag: _created(cloud, tag)) for tag in tags]
    site.fail("volumes", Fault("status", status=502))
    volumes = customer(listed_volumes)
    assert [(one.tag, one.size_gb, one.region) for one in volumes] == [
        (tag, 20, "US-TX-3") for tag in tags
    ]
    assert volumes[0].usd_per_h == pytest.approx(20 * 0.07 / 720, abs=1e-6)
    for _ in range(2):
        customer(lambda cloud: cloud.volume_store().end(ids[0]))
    assert [one.tag for one in customer(listed_volumes)] == tags[1:]
    site.fail("volume", Fault("lost", after=True))
    error = customer.refused(lambda cloud: _created(cloud, "tm-0a1b2c-444444"))
    assert (error.code, len(site.volumes)) == ("CLOUD_UNREACHABLE", 5)  # asked for once
    site.fail("volumes", Fault("status", status=410), times=3)
    assert customer.refused(listed_volumes).code in ("CLOUD_REFUSED", "CLOUD_UNREACHABLE")


async def _store_of(cloud: Cloud) -> None:
    cloud.volume_store()


async def _created(cloud: Cloud, tag: str) -> str:
    return await cloud.volume_store().create(tag, 20, "US-TX-3")


def test_a_list_whose_pages_repeat_is_invalid(customer: Customer, site: Site) -> None:
    site.spoilt["list"] = lambda body: {**body, "next_token": "7", "nextCursor": "7"}
    if customer.provider != "lambda":
        assert customer.refused(lambda cloud: cloud.instances()).code == "INVALID_RESPONSE"
        assert site.count("list") == 2


@pytest.mark.parametrize("kind", ["list", "instance", "end"])
def test_an_api_that_is_gone_is_not_taken_for_an_instance_that_has_ended(
    customer: Customer, site: Site, kind: Kind
) -> None:
    provider_id = customer.create()
    site.fail(kind, Fault("status", status=410), times=9)
    calls: dict[str, Callable[[Cloud], Awaitable[Any]]] = {
        "list": lambda cloud: cloud.instances(),
        "instance": lambda cloud: cloud.instance(provider_id),
        "end": lambda cloud: cloud.end(provider_id),
    }
    error = customer.refused(calls[kind])
    assert error.code == "CLOUD_REFUSED" and "try a newer Trainmaster" in str(error.fix)
    assert len(site.alive) == 1
