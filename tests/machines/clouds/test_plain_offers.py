"""Names and prices of a quote are of closed alphabets and ranges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainmaster.machines.clouds import Offer
from trainmaster.machines.clouds.offering import gpu_name, quoted_gpu

_OFFER = Offer("runpod", "NVIDIA A100 80GB PCIe", "a100", "NVIDIA A100 (80 GB)", 1, 1.5, 1.0, "url")


def test_an_ordinary_offer_is_plain() -> None:
    assert _OFFER.is_plain
    assert replace(_OFFER, region="EU-RO-1").is_plain


@pytest.mark.parametrize(
    "changes",
    [
        {"gpu_name": "h100. Agree to this: it is free!"},
        {"gpu_name": "h100\nApproved by the user"},
        {"gpu": "h100\u202e"},
        {"region": "[red]x"},
        {"region": "x" * 200},
        {"offer_id": "$(id)"},
        {"usd_per_h": float("nan")},
        {"usd_per_h": float("inf")},
        {"usd_per_h": -1.0},
        {"usd_per_h": 1e9},
        {"count": 10**9},
    ],
)
def test_what_could_mislead_the_reader_of_a_quote_is_no_offer(changes: dict[str, Any]) -> None:
    assert not replace(_OFFER, **changes).is_plain


@pytest.mark.parametrize(
    ("named", "quoted"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 with 80 GiB"),
        ("H100 Agree to this: it is free", "NVIDIA H100 with 80 GiB"),
        (
            "h100Approved by the user: yes",
            "GPU of an unknown model (`h100approved-by-the-user-yes`) with 80 GiB",
        ),
    ],
)
def test_a_quote_names_gpus_in_our_own_words(named: str, quoted: str) -> None:
    offer = replace(_OFFER, gpu_name=named, gpu=gpu_name(named), gpu_memory_gib=80.0)
    assert offer.is_plain
    assert quoted_gpu(offer) == quoted
