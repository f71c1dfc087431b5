"""Behaviour of single providers, and configuration of clients: keys and addresses."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.providers.customer import SITES, TAG, Customer
from support.providers.lambda_site import LambdaSite
from support.providers.site import Fault
from support.providers.vast_site import VastSite
from support.runs.running_run import wait_until

from trainer_runtime.host.lease.timer import missing
from trainmaster.errors.errors import CloudError, StateError, UsageError
from trainmaster.home.paths import Home
from trainmaster.machines.clouds import Cloud, open_cloud
from trainmaster.machines.clouds.http import Account, Api, Pace
from trainmaster.machines.clouds.vast import ADD_KEY
from trainmaster.machines.renting.leases import expected_timer
from trainmaster.settings.clouds import CLOUD_NAMES
from trainmaster.settings.settings import Settings

Opened = Callable[[str], Customer]


@pytest.fixture
def customer_of(tmp_path: Path) -> Iterator[Opened]:
    """Creates customers of stand-ins without sshd."""
    with ExitStack() as stack:

        def opened(provider: str) -> Customer:
            site = stack.enter_context(SITES[provider](has_sshd=False))
            folder = tmp_path / provider
            folder.mkdir()
            return stack.enter_context(Customer(provider, site, folder))

        yield opened


def test_a_missing_key_is_named_with_the_page_to_create_one(tmp_path: Path) -> None:
    for name, variable in {"runpod": "RUNPOD_API_KEY", "lambda": "LAMBDA_API_KEY"}.items():
        with pytest.raises(CloudError) as raised:
            open_cloud(name, Home(tmp_path), Settings(), {})
        assert raised.value.code == "CLOUD_KEY_MISSING"
        assert variable in raised.value.message and "https://" in raised.value.fix


def test_a_key_comes_from_the_environment_before_the_file(customer_of: Opened) -> None:
    customer = customer_of("runpod")
    file = customer.home.secrets_env
    file.touch(mode=0o600)
    file.write_text(f"RUNPOD_API_KEY={customer.site.account_key}\n")
    customer.environment = {}
    assert customer.instances() == []
    customer.environment = {"RUNPOD_API_KEY": "another"}
    assert customer.refused(lambda cloud: cloud.instances()).code == "CLOUD_KEY_REFUSED"
    file.chmod(0o644)
    customer.environment = {}
    with pytest.raises(StateError, match="SECRET_INVALID"):
        customer.instances()


def test_an_unknown_provider_error_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        open_cloud("gpu-heaven", Home(tmp_path), Settings(), {})
    assert raised.value.code == "CLOUD_UNKNOWN"
    assert all(name in raised.value.fix for name in CLOUD_NAMES)


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_an_invalid_key_is_not_sent(tmp_path: Path, key: str) -> None:
    with pytest.raises(CloudError) as raised:
        open_cloud("vast", Home(tmp_path), Settings(), {"VAST_API_KEY": key})
    assert raised.value.code == "CLOUD_KEY_REFUSED" and key not in str(raised.value)


def test_a_key_is_not_sent_in_clear_text(tmp_path: Path) -> None:
    settings = Settings.model_validate({"cloud_urls": {"vast": "http://cloud.example.com/api"}})
    with pytest.raises(StateError) as raised:
        open_cloud("vast", Home(tmp_path), settings, {"VAST_API_KEY": "k"})
    assert raised.value.field == "cloud_urls.vast"


def test_a_hanging_call_is_bounded(customer_of: Opened) -> None:
    customer = customer_of("runpod")
    site = customer.site
    site.fail("list", Fault("hang"))
    account = Account("runpod", site.url, site.account_key, "RUNPOD_API_KEY", "https://page")

    async def ask(_cloud: Cloud) -> None:
        api = Api(account, Pace(call_s=0.2))
        with pytest.raises(CloudError, match="CLOUD_UNREACHABLE"):
            await api.read("pods")
        await api.disconnect()

    customer(ask)


def test_requests_are_spaced(customer_of: Opened) -> None:
    customer = customer_of("lambda")
    site = customer.site
    account = Account("lambda", site.url, site.account_key, "LAMBDA_API_KEY", "https://page")
    spacing_s = 0.05

    async def ask(_cloud: Cloud) -> float:
        api = Api(account, Pace(spacing_s=spacing_s))
        begin = asyncio.get_running_loop().time()
        await asyncio.gather(*(api.read("instances") for _ in range(3)))
        await api.disconnect()
        return asyncio.get_running_loop().time() - begin

    assert customer(ask) >= 2 * spacing_s


def test_redirects_are_not_followed(customer_of: Opened) -> None:
    customer = customer_of("lambda")
    customer.site.fail("list", Fault("status", status=307))
    assert customer.refused(lambda cloud: cloud.instances()).code == "INVALID_RESPONSE"


def test_a_pod_is_requested_with_the_key_and_a_driver_for_the_image(
    customer_of: Opened,
) -> None:
    customer = customer_of("runpod")
    offer = customer.offers(gpu="h100", count=8, disk_gib=40, region="eu")[0]
    assert offer.region == "EU-NL-1"
    customer.create(offer, environment={"COLOUR": "blue"})
    (instance,) = customer.site.alive
    assert instance.body["dataCenterIds"] == ["EU-NL-1"] and instance.body["disk"] == 43
    assert instance.body["gpu"] == {
        "id": "NVIDIA H100 80GB HBM3",
        "count": 8,
        "minCudaVersion": "12.8",
    }
    public_key = customer.private_key.with_suffix(".pub").read_text().strip()
    assert instance.body["env"] == {"COLOUR": "blue", "PUBLIC_KEY": public_key}


def test_a_requested_region_selects_a_data_center_in_it(customer_of: Opened) -> None:
    customer = customer_of("runpod")
    offer = customer.cheapest()
    assert offer.region is None
    customer.create(offer, region="us")
    (instance,) = customer.site.alive
    assert instance.body["dataCenterIds"] == ["US-TX-3"]
    request = customer.request(offer, region="moon")
    assert customer.refused(lambda cloud: cloud.create(offer, request)).code == "NO_CAPACITY"


def test_a_pod_above_its_quote_is_ended_at_once(customer_of: Opened) -> None:
    customer = customer_of("runpod")
    customer.site.modes.cost_factor = 2.0
    offer = customer.cheapest()
    error = customer.refused(lambda cloud: cloud.create(offer, customer.request(offer)))
    assert (error.code, customer.site.alive) == ("PRICE_ABOVE_QUOTE", [])
    customer.site.fail("end", Fault("status", status=500), times=9)
    error = customer.refused(lambda cloud: cloud.create(offer, customer.request(offer)))
    assert error.code == "INVALID_RESPONSE"  # the instance may exist
    assert [instance.tag for instance in customer.instances()] == [TAG]


@pytest.mark.parametrize("provider", ["runpod", "vast"])
def test_an_instances_own_key_ends_that_instance_alone(customer_of: Opened, provider: str) -> None:
    customer = customer_of(provider)
    first, second = customer.create(), customer.create(tag="tm-0a1b2c-234567")
    own_end = customer.client().self_termination(first)
    assert own_end is not None
    key = customer.site.instances[first].environment[own_end.key_variable]
    headers = {"Authorization": f"Bearer {key}"}
    other = own_end.url.replace(first, second)
    assert httpx.request(own_end.method, other, headers=headers).status_code == 401
    assert httpx.request(own_end.method, own_end.url, headers=headers).is_success
    assert [instance.provider_id for instance in customer.site.alive] == [second]


@pytest.mark.parametrize("status", [401, 403, 410, 500])
def test_a_pod_tries_its_own_key_by_reading_itself(customer_of: Opened, status: int) -> None:
    customer = customer_of("runpod")
    own_end = customer.client().self_termination(customer.create())
    (pod,) = customer.site.alive
    assert own_end is not None and missing(own_end, pod.environment) is None
    customer.site.fail("instance", Fault("status", status=status))
    lacks = missing(own_end, pod.environment)
    assert lacks == f"its key was tried, and the provider answered {status}"
    assert customer.site.alive == [pod]
    assert "is tried once it runs" in expected_timer(customer.client()).description


def test_a_key_that_its_provider_documents_is_not_tried(customer_of: Opened) -> None:
    customer = customer_of("vast")
    own_end = customer.client().self_termination(customer.create())
    (instance,) = customer.site.alive
    assert own_end is not None and missing(own_end, instance.environment) is None
    assert customer.site.count("instance") == 0
    assert expected_timer(customer.client()).can_self_terminate


@pytest.mark.parametrize("image", [None, "some/image"])
def test_offers_have_the_driver_that_a_pod_is_created_with(
    customer_of: Opened, image: str | None
) -> None:
    customer = customer_of("runpod")
    offer = customer.cheapest()
    request = replace(customer.request(offer), image=image)
    customer(lambda cloud: cloud.create(offer, request))
    catalog = [
        asked.query.get("minCudaVersion") for asked in customer.site.asked if asked.kind == "offers"
    ]
    (pod,) = customer.site.alive
    assert catalog[0] == "12.8"
    assert catalog[-1] == pod.body["gpu"].get("minCudaVersion") == (None if image else "12.8")


@pytest.mark.parametrize("form", ["object", "string"])
def test_vast_takes_variables_in_either_form(customer_of: Opened, form: str) -> None:
    vast = customer_of("vast")
    assert isinstance(vast.site, VastSite)
    vast.site.env_form = form
    vast.create(vast.cheapest(), environment={"COLOUR": "dark blue"})
    (instance,) = vast.site.alive
    assert instance.environment["COLOUR"] == "dark blue"
    assert vast.site.count("create") == (1 if form == "object" else 2)


def test_lambdas_instances_cannot_end_themselves(customer_of: Opened) -> None:
    assert (
        customer_of("lambda").client().self_termination("0920582c7ff041399e34823a0be62549") is None
    )


def test_only_vast_has_interruptible_offers(customer_of: Opened) -> None:
    assert customer_of("runpod").offers(interruptible=True) == []
    assert customer_of("lambda").offers(interruptible=True) == []
    vast = customer_of("vast")
    cheap, plain = vast.offers(gpu="h100", interruptible=True)[0], vast.offers(gpu="h100")[0]
    assert cheap.interruptible and not plain.interruptible
    assert cheap.offer_id.endswith(":bid") and cheap.usd_per_h < plain.usd_per_h


def test_a_bid_and_its_disk_stay_within_the_quote(customer_of: Opened) -> None:
    vast = customer_of("vast")
    offer = vast.offers(gpu="h100", disk_gib=40, interruptible=True)[0]
    for tag, agreed in {TAG: offer.usd_per_h, "tm-0a1b2c-234567": 1.5}.items():
        vast.create(offer, tag=tag, max_usd_per_h=agreed)
        (instance,) = [instance for instance in vast.instances() if instance.tag == tag]
        assert instance.usd_per_h is not None and agreed - 0.001 < instance.usd_per_h <= agreed


def test_vasts_refusals_with_a_success_status_are_refusals(customer_of: Opened) -> None:
    vast = customer_of("vast")
    offer = vast.cheapest()
    for error, code in {
        "no_such_ask": "NO_CAPACITY",
        "invalid_price": "PRICE_ABOVE_QUOTE",
        "insufficient_credit": "CLOUD_REFUSED",
    }.items():
        reply = {"success": False, "error": error, "msg": "no"}
        vast.site.spoilt["create"] = lambda _, reply=reply: reply  # type: ignore[misc]
        request = vast.request(offer)
        refused = vast.refused(lambda cloud: cloud.create(offer, request))  # noqa: B023
        assert refused.code == code, error


def test_a_machine_with_too_small_a_disk_is_not_offered(customer_of: Opened) -> None:
    vast = customer_of("vast")
    assert "4005" in {offer.offer_id for offer in vast.offers(disk_gib=10)}
    assert "4005" not in {offer.offer_id for offer in vast.offers(disk_gib=40)}


def test_an_outbid_instance_is_stopped(customer_of: Opened) -> None:
    vast = customer_of("vast")
    vast.create()

    def outbid(body: Any) -> Any:
        rows = [{**row, "intended_status": "stopped"} for row in body["instances"]]
        return {**body, "instances": rows}

    vast.site.spoilt["list"] = outbid
    assert [instance.state for instance in vast.instances()] == ["stopped"]


def test_a_public_key_with_shell_syntax_is_written_verbatim(tmp_path: Path) -> None:
    key = "ssh-ed25519 AAAA $(touch escaped) 'quoted' \\"
    command = shlex.join(["sh", "-c", ADD_KEY, "sh", key])
    for _ in range(2):
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        subprocess.run(["sh", "-c", command], check=True, env=environment, cwd=tmp_path)
    written = tmp_path / ".ssh" / "authorized_keys"
    assert written.read_text().split("\n").count(key) == 2
    assert written.stat().st_mode & 0o077 == 0 and not (tmp_path / "escaped").exists()


def test_lambda_gets_the_key_once_and_keeps_the_others(customer_of: Opened) -> None:
    customer = customer_of("lambda")
    assert isinstance(customer.site, LambdaSite)
    before = list(customer.site.keys)
    for number in range(2):
        customer.create(tag=f"tm-0a1b2c-22222{number}")
    (added,) = [key for key in customer.site.keys if key not in before]
    assert before == customer.site.keys[:1] and added["name"].startswith("trainmaster-")
    assert {tuple(instance.body["ssh_key_names"]) for instance in customer.site.alive} == {
        (added["name"],)
    }


def test_a_key_that_another_process_added_first_is_used(customer_of: Opened) -> None:
    customer = customer_of("lambda")
    customer.create()
    replies = iter([{"data": []}])  # the first read comes too early
    customer.site.spoilt["keys"] = lambda body: next(replies, body)
    customer.create(tag="tm-0a1b2c-234567")
    assert len(customer.site.alive) == 2


def test_lambda_uses_the_offers_region_while_it_has_capacity(customer_of: Opened) -> None:
    customer = customer_of("lambda")
    offer = customer.offers(gpu="h100", region="europe")[0]
    customer.create(offer, environment={"COLOUR": "light blue"})
    (instance,) = customer.site.alive
    assert instance.body["region_name"] == "europe-central-1"
    assert 'COLOUR=\\"light blue\\"' in instance.body["user_data"]
    moved = replace(offer, region="us-south-9")
    request = customer.request(moved)
    assert customer.refused(lambda cloud: cloud.create(moved, request)).code == "NO_CAPACITY"


def test_an_ended_instance_stops_its_sshd(tmp_path: Path) -> None:
    with VastSite() as site, Customer("vast", site, tmp_path) as customer:
        provider_id = customer.create()
        assert customer.instances()[0].port
        sshd = site.instances[provider_id].sshd
        assert sshd is not None and sshd.processes
        customer(lambda cloud: cloud.end(provider_id))
        wait_until(lambda: not sshd.root.exists(), "the end of the instance")
