"""What people see of hosts: the list, checks, keys, and caches."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.protocol.figures import in_utc, number_text, size_text, usd_text
from trainmaster.answers.checks import CheckRow
from trainmaster.answers.hosts import (
    GcAnswer,
    HostAddedAnswer,
    HostCheckAnswer,
    HostRemovedAnswer,
    HostRow,
    HostsAnswer,
    HostTrustAnswer,
    RecoverAnswer,
)
from trainmaster.cli.views.blocks import Block, Grid, named, view
from trainmaster.cli.views.rentals import volume_blocks


@view.register
def _(answer: HostsAnswer) -> list[Block]:
    has_clusters = any(row.launcher for row in answer.hosts)
    rows = [
        (
            row.name,
            row.state,
            in_utc(row.as_of) or "",
            row.address,
            row.transport or "",
            *([_launcher(row)] if has_clusters else []),
            row.root if row.cache is None else f"{row.root}, cache {row.cache}",
            ", ".join(row.gpus or ()),
            number_text(row.open_runs),
        )
        for row in answer.hosts
    ]
    launcher = ["launcher"] if has_clusters else []
    columns = ("host", "state", "as of", "address", "transport", *launcher, "root", "GPUs")
    columns = (*columns, "open runs")
    reasons = (
        f"{row.name}: {row.untrusted_reason}" for row in answer.hosts if row.untrusted_reason
    )
    rented = (
        f"{row.name}: rented for {usd_text(row.usd_per_h)}/h until {row.lease_ends_at}"
        for row in answer.hosts
        if row.usd_per_h is not None
    )
    volumes = volume_blocks(answer.volumes) if answer.volumes else []
    checked = view(answer.check) if answer.check else ()
    return [Grid(columns, rows), *reasons, *rented, *volumes, *checked]


def _launcher(row: HostRow) -> str:
    partition = "" if row.partition is None else f", partition {row.partition}"
    options = "" if row.job_options is None else f", {row.job_options}"
    return f"{row.launcher or 'process'}{partition}{options}"


@view.register
def _(answer: HostAddedAnswer) -> list[Block]:
    return [
        f"Added {answer.host}: {answer.address}",
        *named("Pinned its key", answer.fingerprint),
        *([check_grid(answer.checks)] if answer.checks else []),
        f"Next: {answer.next_step}",
    ]


@view.register
def _(answer: HostCheckAnswer) -> list[Block]:
    verdict = "can train." if answer.ok else "can't train like this."
    advised = [f"Next: {answer.next_step}"] if answer.next_step else []
    return [check_grid(answer.checks), f"{answer.host} {verdict}", *advised]


@view.register
def _(answer: HostTrustAnswer) -> list[Block]:
    if not answer.changed:
        return [f"{answer.host} shows the key that was pinned: {', '.join(answer.now)}"]
    return [
        f"Pinned the key of {answer.host}",
        *(f"Before: {line}" for line in answer.pinned),
        *(f"Now: {line}" for line in answer.now),
    ]


@view.register
def _(answer: HostRemovedAnswer) -> list[Block]:
    return [
        f"Removed {answer.host}; nothing on it was touched.",
        *(f"{run_id} continues there, and is no longer followed." for run_id in answer.abandoned),
        *([answer.next_step] if answer.next_step else []),
    ]


@view.register
def _(answer: RecoverAnswer) -> list[Block]:
    rows = [
        (row.run_id, row.state, "lives" if row.supervised else "none", row.reason or "")
        for row in answer.runs
    ]
    grid = Grid(("run", "state", "supervisor", "reason"), rows)
    return [*([grid] if rows else []), f"Next: {answer.next_step}"]


@view.register
def _(answer: GcAnswer) -> list[Block]:
    verb = "Would remove" if answer.dry_run else "Removed"
    rows = [
        *(
            (verb, f"{row.kind}/{row.name}", size_text(row.size_bytes), "")
            for row in answer.removed
        ),
        *(
            ("Kept", f"{row.kind}/{row.name}", size_text(row.size_bytes), row.reason or "")
            for row in answer.kept
        ),
    ]
    freed = f"{verb} {size_text(answer.freed_bytes)} from the cache of {answer.host}"
    return [Grid(("", "entry", "size", "used by"), rows), freed] if rows else [freed]


def check_grid(checks: Sequence[CheckRow]) -> Grid:
    """Also for `doctor`."""
    rows = [
        (row.state, row.name, row.all_found, row.remedy or row.untrusted_remedy or "")
        for row in checks
    ]
    return Grid(("", "what", "found", "remedy"), rows)
