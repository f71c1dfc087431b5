"""`offers`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask
from trainmaster.settings.clouds import CLOUD_NAMES, CloudName


def offers(
    *,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="Such as h100; any without it.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="GPUs in one instance.")] = 1,
    max_usd_h: Annotated[
        float | None,
        typer.Option("--max-usd-h", min=0, help="Maximum price of the instance per hour."),
    ] = None,
    region: Annotated[
        str | None, typer.Option("--region", help="As the provider calls it; any without it.")
    ] = None,
    disk_gib: Annotated[
        float | None, typer.Option("--disk-gib", min=0, help="Disk that counts; 50 without.")
    ] = None,
    interruptible: Annotated[
        bool, typer.Option("--interruptible", help="Those that may be taken away at any time.")
    ] = False,
    provider: Annotated[
        CloudName | None,
        typer.Option("--provider", metavar="|".join(CLOUD_NAMES), help="Ask only this one."),
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option("--spec", metavar="SPEC", help="Predict what its tokens would cost on each."),
    ] = None,
    sort: Annotated[
        Literal["price", "value"] | None,
        typer.Option("--sort", metavar="price|value", help="value, with a spec: by its tokens."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List machines for rent, of all providers that there is a key for. Rents nothing."""
    from trainmaster.cli.views import offers as offering_views  # noqa: F401  (what people see of the answer)
    from trainmaster.machines.clouds import Wanted
    from trainmaster.machines.renting import offers as service

    wanted = Wanted(gpu, count, max_usd_h, region, disk_gib, interruptible)
    query = service.OffersQuery(wanted, provider, spec, sort, limit)
    emit(ask(lambda workspace: service.list_offers(workspace, query)), as_json)
