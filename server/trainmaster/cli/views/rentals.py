"""Text of answers about rented instances, their costs, and pending approvals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import number_text, share_text, usd_text
from trainmaster.answers.rentals import (
    CostsAnswer,
    InstanceRow,
    OrphanRow,
    ProvisionAnswer,
    ReleaseAnswer,
    VolumeRow,
)
from trainmaster.cli.views.blocks import Block, Grid, view
from trainmaster.machines.approvals import ApprovalAnswer, ApprovalsAnswer


@view.register
def _(answer: ApprovalsAnswer) -> list[Block]:
    if not answer.waiting:
        return ["No approval is pending."]
    rows = [
        (row.id, row.action, usd_text(row.usd), row.expires_at, row.text) for row in answer.waiting
    ]
    return [
        Grid(("id", "action", "at most", "good until", "what"), rows),
        f"Next: {command('approve', 'ID')} shows one and asks.",
    ]


@view.register
def _(answer: ApprovalAnswer) -> list[Block]:
    return [f"Approved {answer.id}, once, until {answer.expires_at}: {answer.text}"]


@view.register
def _(answer: ProvisionAnswer) -> list[Block]:
    return [
        f"{answer.host}: {answer.state}, {answer.instance} at {answer.provider}",
        f"{usd_text(answer.usd_per_h)}/h, {usd_text(answer.budget_usd)} at most, "
        f"lease until {answer.lease_ends_at}",
        f"At its end: {answer.lease_timer}",
        *_notes(answer.reason, answer.next_step),
    ]


@view.register
def _(answer: ReleaseAnswer) -> list[Block]:
    brought = [f"Copied here before: {', '.join(answer.mirrored)}"] if answer.mirrored else []
    return [
        f"{answer.host}: {answer.state}, {answer.instance}; {usd_text(answer.spent_usd)} spent",
        *brought,
        *_notes(None, answer.next_step),
    ]


@view.register
def _(answer: CostsAnswer) -> list[Block]:
    blocks: list[Block] = [
        f"{usd_text(answer.spent_usd)} spent, {usd_text(answer.committed_usd)} committed to open "
        f"leases; {usd_text(answer.max_usd_total)} allowed in total"
    ]
    if answer.instances:
        columns = (
            "host",
            "provider",
            "state",
            "an hour",
            "spent",
            "training",
            "budget",
            "until",
            "instance",
        )
        blocks.append(Grid(columns, [_instance(row) for row in answer.instances]))
    if answer.volumes:
        blocks += volume_blocks(answer.volumes)
    if answer.runs:
        blocks.append(
            Grid(("run", "cost"), [(run, usd_text(cost)) for run, cost in answer.runs.items()])
        )
    blocks += [
        f"{row.host}: lost {_lost(row.lost_usd)}" for row in answer.instances if row.lost_usd
    ]
    blocks += [f"{row.host}: {row.state}, {row.reason}" for row in answer.instances if row.reason]
    blocks += [_orphan(row) for row in answer.orphans or ()]
    blocks += [f"{name} was not asked: {why}" for name, why in (answer.not_asked or {}).items()]
    return [*blocks, *_notes(None, answer.next_step)]


def volume_blocks(volumes: Sequence[VolumeRow]) -> list[Block]:
    """A line for each network volume: also of the list of hosts."""
    columns = (
        *("volume", "provider", "state", "GB", "per hour", "per month", "spent", "until"),
        *("used by", "files of runs"),
    )
    rows = [
        (
            row.volume,
            f"{row.provider} {row.region}",
            row.state,
            str(row.size_gb),
            usd_text(row.usd_per_h),
            usd_text(row.usd_per_month),
            usd_text(row.spent_usd),
            row.ended_at or row.lease_ends_at,
            row.used_by or "",
            ", ".join(row.runs or ()),
        )
        for row in volumes
    ]
    return [Grid(columns, rows)]


def _instance(row: InstanceRow) -> tuple[str, ...]:
    spent, budget = usd_text(row.spent_usd), usd_text(row.budget_usd)
    until = row.ended_at or row.lease_ends_at
    return (
        row.host,
        row.provider,
        row.state,
        usd_text(row.usd_per_h),
        spent,
        "" if row.training_share is None else share_text(row.training_share),
        budget,
        until,
        row.instance,
    )


def _lost(usd: Mapping[str, float]) -> str:
    return ", ".join(f"{cause} {usd_text(amount)}" for cause, amount in usd.items())


def _orphan(row: OrphanRow) -> str:
    whose = "of this home" if row.of_this_home else "of another home"
    volume = "" if row.size_gb is None else f", a volume of {number_text(row.size_gb)} GB,"
    return (
        f"Orphan: {row.instance}{volume} at {row.provider} ({row.provider_id}), "
        f"{usd_text(row.usd_per_h)}/h, {whose}, without a record here"
    )


def _notes(reason: str | None, next_step: str | None) -> list[str]:
    return [*([reason] if reason else []), *([f"Next: {next_step}"] if next_step else [])]
