"""The private data sets that a run's sessions are given: what its cache is to hold, its secrets."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.backends.hosts.tree_files import TreeFile
from trainmaster.backends.kaggle.datasets import Datasets
from trainmaster.backends.kaggle.placement import Stay
from trainmaster.store.control.kaggle import KaggleRecords


@dataclass(frozen=True, slots=True)
class Mounts:
    """`owner/slug` each; `secrets`: None where the run has none."""

    cache: tuple[str, ...] = ()
    secrets: str | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        return (*self.cache, *([self.secrets] if self.secrets is not None else []))


class Mounting:
    """Which data set holds what stands on record once it is whole at Kaggle."""

    def __init__(self, datasets: Datasets, records: KaggleRecords) -> None:
        self._datasets = datasets
        self._records = records

    def mounts(self, stay: Stay) -> Mounts | None:
        """What a run's next session is given; None while anything of it is still to be sent."""
        config = stay.config
        cache = [self._records.dataset(place) for place in _wanted(config)]
        secrets = self._records.dataset(f"secrets/{stay.run_id}")
        known = tuple(ref for ref in cache if ref is not None)
        if len(known) < len(cache) or (config.get("secrets") and secrets is None):
            return None
        return Mounts(known, secrets if config.get("secrets") else None)

    def lacks_secrets(self, stay: Stay) -> bool:
        known = self._records.dataset(f"secrets/{stay.run_id}")
        return bool(stay.config.get("secrets")) and known is None

    def forget(self, stay: Stay, refs: Collection[str]) -> None:
        """Data sets that are not at Kaggle any more: they are sent anew."""
        for place in (*_wanted(stay.config), f"secrets/{stay.run_id}"):
            if self._records.dataset(place) in refs:
                self._records.remove_dataset(place)

    def has(self, place: str) -> bool:
        return self._records.dataset(place) is not None

    async def put(self, place: str, files: Sequence[TreeFile], *, mark: bool) -> None:
        """Have a data set with an entry of the cache; raises what `Datasets.put` does."""
        if not self.has(place):
            self._records.put_dataset(place, await self._datasets.put(place, files, mark=mark))

    async def put_secrets(self, run_id: str, generation: int, values: Mapping[str, str]) -> None:
        """Have the secrets for a request in a data set of their own, and those for others gone."""
        given = {"v": 1, "generation": generation, "values": dict(values)}
        files = {"secrets.json": json.dumps(given).encode()}
        ref = await self._datasets.put_secrets(run_id, generation, files)
        self._records.put_dataset(f"secrets/{run_id}", ref)
        await self._datasets.remove_secrets(run_id, but=generation)

    async def remove_secrets(self, run_id: str) -> None:
        await self._datasets.remove_secrets(run_id)
        self._records.remove_dataset(f"secrets/{run_id}")


def _wanted(config: Mapping[str, Any]) -> Iterator[str]:
    """The entries of the cache that come from this machine."""
    data, cache = config["data"], str(config["data"]["cache_dir"])
    if data.get("upload"):
        yield f"{'data' if data['prepare'] == 'here' else 'sources'}/{data['fingerprint']}"
    for item in config.get("inputs") or ():
        if item.get("from"):
            yield posixpath.relpath(item["folder"], cache)
    environment = config.get("environment")
    if isinstance(environment, dict) and environment.get("wheels_from"):
        yield posixpath.relpath(environment["wheels"], cache)
