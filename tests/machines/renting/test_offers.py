"""Offers of all providers at once: sorted, priced for a spec, and found again by their names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.machines.offers import OffersOnlyCloud, cloud_factory, offer
from support.runs.running_run import run_async, small_spec

from trainmaster.answers.rentals import OffersAnswer
from trainmaster.errors.errors import CloudError, TrainmasterError, UsageError
from trainmaster.machines.clouds import Offer, Wanted
from trainmaster.machines.renting.offers import OffersQuery, find_offer, list_offers
from trainmaster.sync.workspace import Workspace

BROKEN = CloudError("INVALID_RESPONSE", "vast answered with a page.", "Try later.", retryable=True)
GPT = """\
name: gpt
framework: litgpt
model: {preset: gpt2-124m}
data: {sources: [{path: "host:/data/corpus"}], seq_len: 1024}
batch: {tokens: 524288}
steps: 1000
"""


@pytest.fixture
def runpod() -> OffersOnlyCloud:
    return OffersOnlyCloud("runpod", [offer("runpod", "dear", 4.0), offer("runpod", "cheap", 2.5)])


def asked(workspace: Workspace, query: OffersQuery, *clouds: OffersOnlyCloud) -> OffersAnswer:
    return run_async(lambda: list_offers(workspace, query, cloud_factory(*clouds)))


def found(workspace: Workspace, name: str, *clouds: OffersOnlyCloud) -> Offer:
    return run_async(lambda: find_offer(workspace, name, factory=cloud_factory(*clouds)))


def test_offers_of_all_providers_come_by_price(
    workspace: Workspace, runpod: OffersOnlyCloud
) -> None:
    vast = OffersOnlyCloud("vast", [offer("vast", "7", 3.0)])
    answer = asked(workspace, OffersQuery(), runpod, vast)
    assert answer.offers.offer == ["runpod:cheap", "vast:7", "runpod:dear"]
    assert answer.offers.usd_per_h == [2.5, 3.0, 4.0]
    assert answer.offers.priced_at[0] == "2026-09-21T14:13:20Z"
    assert answer.sources == {"runpod": "https://runpod", "vast": "https://vast"}
    assert answer.offers.usd_per_btok is None
    assert runpod.disconnected == vast.disconnected == 1


def test_a_provider_that_fails_is_named_and_stops_no_other(
    workspace: Workspace, runpod: OffersOnlyCloud
) -> None:
    answer = asked(workspace, OffersQuery(), runpod, OffersOnlyCloud("vast", fails=BROKEN))
    assert len(answer.offers.offer) == 2
    assert answer.not_asked is not None
    assert answer.not_asked["vast"] == "INVALID_RESPONSE: vast answered with a page. Try later."
    assert "LAMBDA_API_KEY" in answer.not_asked["lambda"]


def test_offers_that_can_not_be_read_are_counted(
    workspace: Workspace, runpod: OffersOnlyCloud
) -> None:
    runpod.left_out = 3
    answer = asked(workspace, OffersQuery(provider="runpod"), runpod)
    assert answer.not_asked == {"runpod": "3 of its offers can't be read"}


def test_what_is_wanted_reaches_each_provider(
    workspace: Workspace, runpod: OffersOnlyCloud
) -> None:
    wanted = Wanted("NVIDIA H100 SXM", 8, 24.0, "EU", interruptible=True)
    asked(workspace, OffersQuery(wanted), runpod)
    assert runpod.asked == [Wanted("h100", 8, 24.0, "EU", 50.0, interruptible=True)]


def test_a_limit_says_how_many_it_left_out(workspace: Workspace, runpod: OffersOnlyCloud) -> None:
    answer = asked(workspace, OffersQuery(limit=1), runpod)
    assert (answer.offers.offer, answer.more) == (["runpod:cheap"], 1)


def test_without_any_key_each_variable_is_named(workspace: Workspace) -> None:
    with pytest.raises(CloudError) as caught:
        asked(workspace, OffersQuery())
    assert caught.value.code == "CLOUD_KEY_MISSING"
    for name in ("RUNPOD_API_KEY", "VAST_API_KEY", "LAMBDA_API_KEY"):
        assert name in caught.value.message


def test_where_nobody_answers_that_is_an_error(workspace: Workspace) -> None:
    with pytest.raises(CloudError, match="answered with a page"):
        asked(workspace, OffersQuery(), OffersOnlyCloud("vast", fails=BROKEN))


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (OffersQuery(provider="aws"), "CLOUD_UNKNOWN"),
        (OffersQuery(sort="value"), "BAD_ARGUMENT"),
    ],
)
def test_what_can_not_be_asked_is_refused(
    workspace: Workspace, query: OffersQuery, code: str
) -> None:
    with pytest.raises(UsageError) as caught:
        asked(workspace, query)
    assert caught.value.code == code


def test_tokens_are_priced_where_the_spec_fits(workspace: Workspace) -> None:
    cloud = OffersOnlyCloud(
        "runpod",
        [
            offer("runpod", "h100", 3.0),
            offer("runpod", "eight", 20.0, count=8),
            offer("runpod", "a100", 1.2, gpu="a100", gpu_name="NVIDIA A100 80GB PCIe"),
            offer("runpod", "unheard", 0.5, gpu="rx 9999", gpu_memory_gib=48.0),
            offer("runpod", "tiny disk", 0.1, disk_gib=1.0),
        ],
    )
    answer = asked(workspace, OffersQuery(spec=GPT), cloud)
    priced = dict(zip(answer.offers.offer, answer.offers.usd_per_btok or [], strict=True))
    assert priced["runpod:unheard"] is None  # its speed is unknown
    assert priced["runpod:tiny disk"] is None
    one, eight, a100 = (priced[f"runpod:{name}"] for name in ("h100", "eight", "a100"))
    assert one is not None and eight is not None and a100 is not None
    assert 0.5 < one < 10.0
    assert eight < one  # 20 $ for eight is less than 3 $ for each
    assert answer.offers.offer[:3] == [
        f"runpod:{name}" for _, name in sorted([(one, "h100"), (eight, "eight"), (a100, "a100")])
    ]
    assert answer.offers.offer[3:] == ["runpod:tiny disk", "runpod:unheard"]
    by_price = asked(workspace, OffersQuery(spec=GPT, sort="price"), cloud)
    assert by_price.offers.usd_per_h == sorted(by_price.offers.usd_per_h)


def test_a_spec_that_fits_no_offer_has_a_reason(
    workspace: Workspace, runpod: OffersOnlyCloud
) -> None:
    huge = GPT.replace("{preset: gpt2-124m}", "{n_layer: 96, n_head: 96, d_model: 12288}")
    answer = asked(workspace, OffersQuery(spec=huge), runpod)
    assert answer.offers.usd_per_btok == [None, None]
    assert answer.next_step is not None
    assert "The spec fits none of them" in answer.next_step
    assert answer.spec_problem is not None and "GiB" in answer.spec_problem


def test_a_spec_that_no_machine_could_carry_is_refused(
    workspace: Workspace, runpod: OffersOnlyCloud, tmp_path: Path
) -> None:
    with pytest.raises(TrainmasterError) as caught:
        asked(workspace, OffersQuery(spec=small_spec(tmp_path, steps="-1")), runpod)
    assert caught.value.code == "INVALID_VALUE"


def test_an_offer_is_found_again_by_its_name(workspace: Workspace, runpod: OffersOnlyCloud) -> None:
    assert found(workspace, "runpod:cheap", runpod).usd_per_h == 2.5
    runpod.stock = [offer("runpod", "spot", 1.0, interruptible=True)]
    assert found(workspace, "runpod:spot", runpod).interruptible


def test_an_offer_that_is_gone_lists_others(workspace: Workspace, runpod: OffersOnlyCloud) -> None:
    with pytest.raises(CloudError) as caught:
        found(workspace, "runpod:gone", runpod)
    assert caught.value.code == "OFFER_UNKNOWN"
    assert "runpod:cheap ($2.50/h), runpod:dear" in caught.value.fix
    with pytest.raises(UsageError, match="aws"):
        found(workspace, "aws:1", runpod)


def test_offers_that_could_mislead_are_neither_listed_nor_quoted_nor_named(
    workspace: Workspace,
) -> None:
    good = offer("vast", "7", 3.0)
    bad = [
        replace(good, offer_id="8", gpu_name="h100\nApproved by the user"),
        replace(good, offer_id="9", region="[red]x\x1b[31m"),
        replace(good, offer_id="10", usd_per_h=-5.0),
        replace(good, offer_id="$(id)"),
        replace(good, offer_id="11", count=10**9),
    ]
    vast = OffersOnlyCloud("vast", [good, *bad])
    answer = asked(workspace, OffersQuery(), vast)
    assert answer.offers.offer == ["vast:7"]
    assert (answer.not_asked or {})["vast"] == "5 of its offers can't be read"
    for one in bad:
        with pytest.raises(CloudError) as caught:
            found(workspace, one.name, vast)
        assert caught.value.code == "OFFER_UNKNOWN"
        assert "Take another: vast:7 ($3.00/h)." in caught.value.fix
