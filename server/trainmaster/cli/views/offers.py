"""Text of the answer about offers."""

from __future__ import annotations

from trainer_runtime.core.protocol.figures import gib_text, number_text, usd_text
from trainmaster.answers.rentals import OfferColumns, OffersAnswer
from trainmaster.cli.views.blocks import Block, Grid, view


@view.register
def _(answer: OffersAnswer) -> list[Block]:
    listed = answer.offers
    blocks: list[Block] = [_grid(listed)] if listed.offer else []
    if listed.offer:
        sources = ", ".join(answer.sources.values())
        blocks.append(f"Prices of {min(listed.priced_at)}, from {sources}")
    blocks += [f"{number_text(answer.more)} more; raise --limit."] * bool(answer.more)
    blocks += [f"Not asked: {name}: {why}" for name, why in (answer.not_asked or {}).items()]
    blocks += [f"Why not: {answer.spec_problem}"] * bool(answer.spec_problem)
    return [*blocks, f"Next: {answer.next_step}"]


def _grid(listed: OfferColumns) -> Grid:
    """Few columns, so that names and prices stay whole at 80; none in which nothing stands."""
    columns = {
        "offer": listed.offer,
        "GPU": [_gpus(listed, at) for at in range(len(listed.offer))],
        "an hour": [usd_text(price) for price in listed.usd_per_h],
        "a billion tokens": [usd_text(price) for price in listed.usd_per_btok or ()],
        "machine": [_machine(listed, at) for at in range(len(listed.offer))],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    return Grid(tuple(shown), list(zip(*shown.values(), strict=True)))


def _gpus(listed: OfferColumns, at: int) -> str:
    memory = listed.gpu_memory_gib[at]
    each = "" if memory is None else f" {gib_text(memory)}"
    return f"{listed.count[at]}x {listed.gpu[at]}{each}"


def _machine(listed: OfferColumns, at: int) -> str:
    cores, memory, disk = listed.cpu_cores[at], listed.memory_gib[at], listed.disk_gib[at]
    parts = (
        "interruptible" if listed.interruptible[at] else "",
        "" if cores is None else f"{cores:g} cores",
        "" if memory is None else gib_text(memory),
        "" if disk is None else f"{gib_text(disk)} disk",
        listed.region[at] or "",
    )
    return ", ".join(part for part in parts if part)
