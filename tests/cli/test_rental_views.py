from __future__ import annotations

from trainer_runtime.core.protocol.figures import usd_text
from trainmaster.answers.base import Answer
from trainmaster.answers.rentals import (
    CostsAnswer,
    InstanceRow,
    OrphanRow,
    ProvisionAnswer,
    ReleaseAnswer,
)
from trainmaster.cli.views.blocks import Grid, view
from trainmaster.machines.approvals import ApprovalAnswer, ApprovalsAnswer

_TAG, _UNTIL = "tm-aaaaaa-bcdefg", "2026-11-22T10:00:00Z"


def text_of(answer: Answer) -> list[str]:
    lines = []
    for block in view(answer):
        rows = [block.columns, *block.rows] if isinstance(block, Grid) else [[block]]
        lines += ["  ".join(row) for row in rows]
    return lines


def test_a_rented_instance_reads_top_to_bottom() -> None:
    answer = ProvisionAnswer(
        instance=_TAG,
        host="gpu1",
        state="created",
        provider="runpod",
        usd_per_h=2.69,
        budget_usd=5.38,
        lease_ends_at=_UNTIL,
        lease_timer="the instance ends itself",
        reason="it is booting",
        next_step="Wait.",
    )
    assert text_of(answer) == [
        f"gpu1: created, {_TAG} at runpod",
        f"$2.69/h, $5.38 at most, lease until {_UNTIL}",
        "At its end: the instance ends itself",
        "it is booting",
        "Next: Wait.",
    ]


def test_a_release_shows_its_cost_and_the_copied_runs() -> None:
    answer = ReleaseAnswer(
        instance=_TAG, host="gpu1", state="ended", mirrored=["r"], spent_usd=0.0312
    )
    assert text_of(answer) == [
        f"gpu1: ended, {_TAG}; $0.0312 spent",
        "Copied here before: r",
    ]


def test_costs_list_instances_runs_and_orphans() -> None:
    row = InstanceRow(
        instance=_TAG,
        host="gpu1",
        provider="runpod",
        state="ready",
        usd_per_h=2.69,
        spent_usd=1.5,
        budget_usd=5.38,
        lease_ends_at=_UNTIL,
    )
    orphan = OrphanRow(instance="tm-b", provider="vast", provider_id="77", of_this_home=False)
    answer = CostsAnswer(
        spent_usd=1.5,
        committed_usd=3.88,
        max_usd_total=100.0,
        instances=[row],
        runs={"small-abc234": 1.25},
        orphans=[orphan],
        not_asked={"lambda": "CLOUD_UNREACHABLE"},
        next_step="Release it.",
    )
    assert text_of(answer) == [
        "$1.50 spent, $3.88 committed to open leases; $100.00 allowed in total",
        "host  provider  state  an hour  spent  training  budget  until  instance",
        f"gpu1  runpod  ready  $2.69  $1.50    $5.38  {_UNTIL}  {_TAG}",
        "run  cost",
        "small-abc234  $1.25",
        "Orphan: tm-b at vast (77), $?/h, of another home, without a record here",
        "lambda was not asked: CLOUD_UNREACHABLE",
        "Next: Release it.",
    ]


def test_pending_approvals_are_listed() -> None:
    waiting = ApprovalAnswer(
        id="q-abcdef",
        action="provision",
        text="Rent it.",
        usd=4.0,
        expires_at=_UNTIL,
        approved=False,
    )
    assert text_of(ApprovalsAnswer(waiting=[waiting])) == [
        "id  action  at most  good until  what",
        f"q-abcdef  provision  $4.00  {_UNTIL}  Rent it.",
        "Next: `trainmaster approve ID` shows one and asks.",
    ]
    assert text_of(ApprovalsAnswer(waiting=[])) == ["No approval is pending."]
    assert text_of(waiting.model_copy(update={"approved": True})) == [
        f"Approved q-abcdef, once, until {_UNTIL}: Rent it."
    ]


def test_small_sums_are_not_shown_as_nothing() -> None:
    shown = [usd_text(amount) for amount in (None, 0.0, 0.0054, 0.1, 1234.5)]
    assert shown == ["$?", "$0.00", "$0.0054", "$0.10", "$1,234.50"]
