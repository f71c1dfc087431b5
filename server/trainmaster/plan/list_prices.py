"""Public on-demand prices of GPUs, for plans on machines that nobody offers yet.

Read from the providers' own pages, some by way of published transcriptions of them; each row has
the day of its reading. Providers change them weekly: what a machine costs now, `offers` asks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ListPrice:
    """Dollars an hour for one GPU with its share of the machine; `read_on`: ISO 8601."""

    gpu: str
    usd_per_gpu_h: float
    provider: str
    read_on: str


# RunPod's are those of its own data centres ("Secure"), and where it has none of its community's.
PRICES: tuple[ListPrice, ...] = (
    ListPrice("b200", 6.79, "RunPod", "2026-10-07"),
    ListPrice("h200", 4.59, "RunPod", "2026-10-07"),
    ListPrice("h100", 3.99, "RunPod", "2026-11-09"),
    ListPrice("h100-nvl", 3.19, "RunPod", "2026-11-09"),
    ListPrice("h100-pcie", 2.89, "RunPod", "2026-11-09"),
    ListPrice("a100", 1.79, "RunPod", "2026-11-09"),
    ListPrice("a100-40", 1.99, "Lambda", "2026-11-16"),
    ListPrice("pro6000", 2.04, "Akash", "2026-09-20"),
    ListPrice("l40s", 0.79, "RunPod (community)", "2026-03-10"),
    ListPrice("l40", 0.69, "RunPod (community)", "2026-03-10"),
    ListPrice("a6000", 0.82, "Verda", "2026-10-29"),
    ListPrice("a40", 0.44, "RunPod", "2026-08-19"),
    ListPrice("l4", 0.44, "RunPod (community)", "2026-03-10"),
    ListPrice("5090", 0.69, "RunPod (community)", "2026-03-10"),
    ListPrice("4090", 0.34, "RunPod (community)", "2026-03-10"),
    ListPrice("3090", 0.22, "RunPod (community)", "2026-03-10"),
    ListPrice("a10g", 1.006, "AWS g5.xlarge", "2026-06-17"),
    ListPrice("a10", 0.86, "Lambda", "2026-05-07"),
    ListPrice("t4", 0.59, "Modal", "2026-05-07"),
)


def list_price(gpu: str) -> ListPrice | None:
    """The price of a GPU by its name in the table of GPUs; None if none is known."""
    return next((price for price in PRICES if price.gpu == gpu), None)
