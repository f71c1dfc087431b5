"""Which runs have values that can be compared: those of one method, on the same data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from trainmaster.backends import DEBUG
from trainmaster.store.run import Run

_MOST_SOURCES = 3


@dataclass(frozen=True, slots=True)
class Group:
    """Runs whose losses mean the same: one method, the same data and tokenizer; simulated ones are
    by themselves."""

    simulated: bool
    method: str
    data: str
    named: str

    @classmethod
    def of(cls, run: Run) -> Group:
        data = run.document.get("data")
        data = data if isinstance(data, Mapping) else {}
        sources = [item for item in data.get("sources") or () if isinstance(item, Mapping)]
        identity = data.get("fingerprint") or json.dumps(
            [sources, data.get("tokenizer")], sort_keys=True, default=str
        )
        names = [PurePath(str(item.get("path") or item.get("name"))).name for item in sources]
        more = ["..."] * (len(names) > _MOST_SOURCES)
        method = str(run.document.get("method"))
        named = "+".join([*names[:_MOST_SOURCES], *more]) or "unknown data"
        return cls(run.host == DEBUG, method, str(identity), named)

    def __str__(self) -> str:
        return ", ".join([self.method, self.named, *["simulated"] * self.simulated])
