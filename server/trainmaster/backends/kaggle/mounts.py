"""The private data sets for a run's sessions: cache entries and secrets."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.backends.hosts.tree_files import TreeFile
from trainmaster.backends.kaggle.datasets import Datasets
from trainmaster.backends.kaggle.placement import KagglePlacement
from trainmaster.store.control.kaggle import KaggleRecords


@dataclass(frozen=True, slots=True)
class Mounts:
    """`owner/slug` each; `secrets`: None if the run has none."""

    cache: tuple[str, ...] = ()
    secrets: str | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        return (*self.cache, *([self.secrets] if self.secrets is not None else []))


class Mounting:
    """Records which data sets are complete at Kaggle, and for what."""

    def __init__(self, datasets: Datasets, records: KaggleRecords) -> None:
        self._datasets = datasets
        self._records = records

    def mounts(self, placement: KagglePlacement) -> Mounts | None:
        """The mounts of a run's next session; None while an upload is pending."""
        config = placement.config
        cache = [self._records.dataset(place) for place in _cache_entries(config)]
        secrets = self._records.dataset(f"secrets/{placement.run_id}")
        datasets = tuple(ref for ref in cache if ref is not None)
        if len(datasets) < len(cache) or (config.get("secrets") and secrets is None):
            return None
        return Mounts(datasets, secrets if config.get("secrets") else None)

    def lacks_secrets(self, placement: KagglePlacement) -> bool:
        dataset = self._records.dataset(f"secrets/{placement.run_id}")
        return bool(placement.config.get("secrets")) and dataset is None

    def forget(self, placement: KagglePlacement, refs: Collection[str]) -> None:
        """Forget data sets that no longer exist at Kaggle: they are uploaded again."""
        for place in (*_cache_entries(placement.config), f"secrets/{placement.run_id}"):
            if self._records.dataset(place) in refs:
                self._records.remove_dataset(place)

    def has(self, place: str) -> bool:
        return self._records.dataset(place) is not None

    async def put(self, place: str, files: Sequence[TreeFile], *, mark: bool) -> None:
        """Upload a cache entry and record its data set; raises as `Datasets.put`."""
        if not self.has(place):
            self._records.put_dataset(place, await self._datasets.put(place, files, mark=mark))

    async def put_secrets(self, run_id: str, generation: int, values: Mapping[str, str]) -> None:
        """Upload the secrets for a request, and remove those for others."""
        document = {"v": 1, "generation": generation, "values": dict(values)}
        files = {"secrets.json": json.dumps(document).encode()}
        ref = await self._datasets.put_secrets(run_id, generation, files)
        self._records.put_dataset(f"secrets/{run_id}", ref)
        await self._datasets.remove_secrets(run_id, but=generation)

    async def remove_secrets(self, run_id: str) -> bool:
        """True if there were any."""
        removed = await self._datasets.remove_secrets(run_id)
        self._records.remove_dataset(f"secrets/{run_id}")
        return removed


def _cache_entries(config: Mapping[str, Any]) -> Iterator[str]:
    """The cache entries that this machine provides."""
    data, cache = config["data"], str(config["data"]["cache_dir"])
    if data.get("upload"):
        yield f"{'data' if data['prepare'] == 'here' else 'sources'}/{data['fingerprint']}"
    for item in config.get("inputs") or ():
        if item.get("from"):
            yield posixpath.relpath(item["folder"], cache)
    environment = config.get("environment")
    if isinstance(environment, dict) and environment.get("wheels_from"):
        yield posixpath.relpath(environment["wheels"], cache)
