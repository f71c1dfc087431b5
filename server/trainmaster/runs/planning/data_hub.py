"""Lists the sources that are data sets of a hub; what they hold is fetched by the host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from trainer_runtime.core.files.compression import METHODS, compressed_by
from trainer_runtime.core.files.corpus import TEXT, AskedSource, CorpusFile, Listing
from trainer_runtime.core.inputs.hub_dataset import (
    PREFIX,
    DatasetAddress,
    NotInDatasetError,
    files_of_format,
    files_of_split,
)
from trainer_runtime.core.inputs.source_check import check_source
from trainmaster.calls.work_thread import in_thread
from trainmaster.home.scratch_folder import scratch_folder
from trainmaster.plan.corpus_facts import HubFiles, StoreFiles
from trainmaster.plan.spec import TrainingSpec
from trainmaster.runs.planning.model_hub import Hub, hub_of
from trainmaster.settings.policy import Policy

CHECKED_BYTES = 256 << 10
# What a part of a file shows.
_READ_IN_PARTS = (TEXT, "jsonl")

# The hub that a field of the spec is asked of.
HubOf = Callable[[str], Hub]


@dataclass(frozen=True, slots=True)
class FetchedListing:
    """`files`: what the host has to fetch; None where the listing has a problem."""

    listing: Listing
    files: HubFiles | StoreFiles | None = None


def hub_for(spec: TrainingSpec, token: str | None, policy: Policy) -> HubOf:
    """The hub that a run of the spec will ask; `token`: sent where the spec's secrets hold one."""
    return lambda field: hub_of(spec.env, os.environ, token, field, policy)


async def list_dataset(hub: Hub, address: DatasetAddress, asked: AskedSource) -> FetchedListing:
    """The files of a data set's configuration and split.

    Raises:
        PlanError: `HUB_NOT_FOUND`, `HUB_GATED`, `HUB_UNREACHABLE`.
    """
    path, data_format = asked.path, asked.format
    dataset = await hub.dataset(address.name, address.revision)
    sizes = dict(dataset.files)
    try:
        names = files_of_split(sizes, dataset.configs, address)
        names = [name for name in files_of_format(names, data_format) if sizes[name]]
    except NotInDatasetError as error:
        return _unlisted(path, str(error))
    if not names:
        return _unlisted(path, "its files are empty")
    files = tuple(CorpusFile(name, sizes[name], 0) for name in names)
    place = f"{PREFIX}{dataset.name}@{dataset.revision}"
    wanted = tuple((name, sizes[name]) for name in names)
    fetched = HubFiles(
        name=dataset.name, revision=dataset.revision, files=wanted, license=dataset.license
    )
    compression = compression_by_name(names)
    listing = Listing(place, is_folder=True, files=files, compression=compression)
    begun = await hub.beginning(dataset, names[0], CHECKED_BYTES)
    return FetchedListing(await in_thread(with_begin, listing, asked, begun), fetched)


def with_begin(listing: Listing, asked: AskedSource, begun: bytes) -> Listing:
    """A listing with what the beginning of its first file shows of its content, by the rules for
    files here; what only a whole file shows is seen by the preparation."""
    first, total = listing.files[0], sum(file.size_bytes for file in listing.files)
    whole = len(begun) >= first.size_bytes
    if asked.format not in _READ_IN_PARTS or (compressed_by(begun) and not whole):
        return listing
    part = begun if whole else begun[: begun.rfind(b"\n") + 1] or begun
    with scratch_folder("trainmaster-hub-") as folder:
        (folder / PurePosixPath(first.name).name).write_bytes(part)
        checked = check_source(replace(asked, path=str(folder)))
    if checked.problem is not None:
        return replace(listing, problem=checked.problem)
    malformed = checked.malformed and checked.malformed.replace(f"{folder}/", "")
    rows = checked.examples * total // max(1, len(part))
    return replace(listing, malformed=malformed, examples=rows, chats=checked.chats)


def compression_by_name(names: Iterable[str]) -> tuple[str, ...]:
    """How files of these names are compressed."""
    return tuple(sorted({METHODS[ending] for ending in map(_ending, names) if ending}))


def _ending(name: str) -> str:
    return next((ending for ending in METHODS if name.endswith(ending)), "")


def _unlisted(path: str, problem: str) -> FetchedListing:
    return FetchedListing(Listing(path, problem=problem))
