"""Quotes on record: who may agree to them, what for, how often and how long."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from trainmaster.errors.confirmation import Quote
from trainmaster.errors.errors import SpendError
from trainmaster.machines import approvals
from trainmaster.store.control.approvals import EXPIRES_AFTER_S
from trainmaster.sync.workspace import Workspace, open_workspace

_QUOTE = Quote("provision", "offer a, 2 hours", "Rent a for 2 h: 4.00 USD.", 4.0)


def allow(workspace: Workspace, usd: float) -> None:
    workspace.home.settings.parent.mkdir(parents=True, exist_ok=True)
    workspace.home.settings.write_text(f"agent_may_spend_usd: {usd}\n")


def required(workspace: Workspace, quote: Quote) -> str:
    """The id that a refusal names."""
    error = approvals.confirmation_required(workspace, quote)
    assert (error.code, error.retryable) == ("CONFIRMATION_REQUIRED", True)
    return error.fix.partition("trainmaster approve ")[2].partition("`")[0]


def test_a_quote_waits_until_somebody_agrees_and_is_then_good_once(workspace: Workspace) -> None:
    quote_id = required(workspace, _QUOTE)
    assert quote_id.startswith("q-") and len(quote_id) == 8
    assert approvals.take_agreement(workspace, _QUOTE) is None
    [waiting] = anyio.run(approvals.list_waiting, workspace).waiting
    assert (waiting.id, waiting.text, waiting.usd) == (quote_id, _QUOTE.text, 4.0)
    assert anyio.run(approvals.approve, workspace, quote_id).approved
    assert anyio.run(approvals.approve, workspace, quote_id).approved  # may be repeated
    assert anyio.run(approvals.list_waiting, workspace).waiting == []
    taken = approvals.take_agreement(workspace, _QUOTE)
    assert taken is not None and (taken.id, taken.by) == (quote_id, "approve")
    assert approvals.take_agreement(workspace, _QUOTE) is None
    with pytest.raises(SpendError, match="used already") as refused:
        anyio.run(approvals.approve, workspace, quote_id)
    assert refused.value.code == "APPROVAL_UNKNOWN"


@pytest.mark.parametrize(
    "other",
    [
        replace(_QUOTE, asked="offer a, 3 hours"),
        replace(_QUOTE, action="release"),
        replace(_QUOTE, usd=4.01),
    ],
)
def test_an_approval_is_good_for_nothing_else_and_nothing_dearer(
    workspace: Workspace, other: Quote
) -> None:
    anyio.run(approvals.approve, workspace, required(workspace, _QUOTE))
    assert approvals.take_agreement(workspace, other) is None
    assert approvals.take_agreement(workspace, replace(_QUOTE, usd=3.5)) is not None


def test_what_is_asked_for_again_keeps_its_id_unless_it_costs_more(workspace: Workspace) -> None:
    first = required(workspace, _QUOTE)
    assert required(workspace, replace(_QUOTE, usd=3.9)) == first
    assert required(workspace, replace(_QUOTE, usd=5.0)) != first


def test_a_quote_expires_approved_or_not(workspace: Workspace) -> None:
    records = workspace.control.approvals
    long_ago = time.time() - EXPIRES_AFTER_S - 1
    waiting = records.quote(_QUOTE, long_ago)
    approved = records.quote(replace(_QUOTE, asked="b"), long_ago)
    assert records.approve(approved.id, "approve", long_ago + 10) is not None
    for row in (waiting, approved):
        with pytest.raises(SpendError, match="has expired"):
            anyio.run(approvals.approve, workspace, row.id)
    assert approvals.take_agreement(workspace, replace(_QUOTE, asked="b")) is None
    assert anyio.run(approvals.list_waiting, workspace).waiting == []
    assert required(workspace, _QUOTE) != waiting.id


def test_an_unknown_id_is_an_error(workspace: Workspace) -> None:
    with pytest.raises(SpendError, match="No quote has the id 'q-nosuch'"):
        anyio.run(approvals.find_quote, workspace, "q-nosuch")


def test_the_allowance_is_kept_to_the_cent_and_over_all_time(workspace: Workspace) -> None:
    allow(workspace, 0.3)
    tenth, later = replace(_QUOTE, usd=0.1), replace(_QUOTE, usd=0.2)
    assert approvals.take_agreement(workspace, replace(_QUOTE, usd=0.300001)) is None
    taken = approvals.take_agreement(workspace, tenth)
    assert taken is not None and taken.by == "allowance"
    assert approvals.take_agreement(workspace, replace(_QUOTE, usd=0.21)) is None
    spent = approvals.take_agreement(workspace, later)
    assert spent is not None
    assert approvals.take_agreement(workspace, replace(_QUOTE, usd=0.01)) is None
    workspace.control.approvals.give_back(spent.id)  # its instance was never created
    assert approvals.take_agreement(workspace, later) is not None


@pytest.mark.parametrize("usd", [float("nan"), float("inf"), -1.0, 0.0])
def test_no_odd_price_passes_the_allowance(workspace: Workspace, usd: float) -> None:
    allow(workspace, 100.0)
    assert approvals.take_agreement(workspace, replace(_QUOTE, usd=usd)) is None


def test_nothing_but_renting_is_covered_by_the_allowance(workspace: Workspace) -> None:
    allow(workspace, 100.0)
    for action in ("release", "clean"):
        assert approvals.take_agreement(workspace, Quote(action, "x", "x", 0.0)) is None


@pytest.mark.parametrize("usd", [0.01, 1e-7, 1e-12])
def test_by_default_nothing_may_be_spent(workspace: Workspace, usd: float) -> None:
    assert approvals.take_agreement(workspace, replace(_QUOTE, usd=usd)) is None


@pytest.mark.parametrize("by", ["allowance", "approval"])
def test_of_two_at_once_one_goes_away_empty(home: Path, by: str) -> None:
    callers = 8
    with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
        if by == "allowance":
            allow(workspace, 7.0)  # less than twice 4
        else:
            anyio.run(approvals.approve, workspace, required(workspace, _QUOTE))
    together = threading.Barrier(callers)

    def take(_: int) -> bool:
        with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
            together.wait()
            return approvals.take_agreement(workspace, _QUOTE) is not None

    with ThreadPoolExecutor(callers) as threads:
        assert sum(threads.map(take, range(callers))) == 1
