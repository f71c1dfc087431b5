"""The sources that the host fetches: data sets of the hub, and what lies in object stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from trainer_runtime.core.files.corpus import AskedSource, Listing
from trainer_runtime.core.inputs.hub_dataset import DatasetAddress
from trainer_runtime.core.inputs.object_store import StoreAddress
from trainer_runtime.core.inputs.row_form import rows_of
from trainmaster.plan.frameworks import method_of
from trainmaster.plan.spec import TrainingSpec
from trainmaster.runs.planning.data_hub import FetchedListing, HubOf, hub_for, list_dataset
from trainmaster.runs.planning.data_store import list_store
from trainmaster.runs.planning.model_hub import is_offline
from trainmaster.settings.policy import Policy
from trainmaster.store.secret_values import HF_TOKEN


@dataclass(frozen=True, slots=True)
class Askable:
    """Who is asked for lists of files: the `hub` of a field, and stores by a run's `secrets`."""

    hub: HubOf
    secrets: Mapping[str, str]


def askable(spec: TrainingSpec, secrets: Mapping[str, str], policy: Policy) -> Askable:
    """What a run of the spec will ask; keys are sent where the spec's secrets hold them."""
    return Askable(hub_for(spec, secrets.get(HF_TOKEN), policy), secrets)


async def list_fetched(spec: TrainingSpec, ask: Askable | None) -> dict[str, FetchedListing]:
    """The listings of the sources that the host fetches, by the source's name; without `ask` nobody
    is asked.

    Raises:
        PlanError: `HUB_NOT_FOUND`, `HUB_GATED`, `HUB_UNREACHABLE`, `STORE_NOT_FOUND`,
            `STORE_REFUSED`.
    """
    kind = rows_of(spec.framework, method_of(spec))
    listed = {}
    for field, source in spec.data.inputs:
        dataset, address = DatasetAddress.find(source.path), StoreAddress.find(source.path)
        if dataset is None and address is None:
            continue
        stated = "format" in source.model_fields_set
        request = AskedSource(source.path, source.format, kind, stated)
        if ask is None:
            listing = _unlisted(source.path, "nobody is asked for it")
        elif address is not None:
            listing = await list_store(
                address, request, f"{field}.path", variables=spec.env, secrets=ask.secrets
            )
        elif dataset is None or is_offline(spec.env):
            listing = _unlisted(source.path, "HF_HUB_OFFLINE is set: name a folder instead")
        else:
            listing = await list_dataset(ask.hub(f"{field}.path"), dataset, request)
        listed[source.name or PurePosixPath(source.path).name] = listing
    return listed


def _unlisted(path: str, problem: str) -> FetchedListing:
    return FetchedListing(Listing(path, problem=problem))
