"""What a kernel's session is to do: `kernel.json`, packed into the script that is pushed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FORMAT_VERSION = 1
ORDER = "kernel.json"
# Below the working folder, and so below the next session's input.
RUN_FOLDER = "run"
# At the root of a data set with an entry of the cache: what `.complete` in the entry is to hold.
CACHE_MARK = "complete.json"
# What the data set of a run's secrets holds, each as the run's own file of that name with a dot.
SECRET_FILES = ("secrets.json", "alerts.json")


@dataclass(frozen=True, slots=True)
class KernelOrder:
    """One session of a run.

    `number` counts the run's sessions from 1. `limit_s`: how long Kaggle lets it go on. The trainer
    is told to save `margin_s` and twice the longest save so far before that. `previous`: the slug
    below the input folder that an earlier session's output is mounted under, None for a run that
    begins. `journal_bytes`: how much of the journal the operator's side has; `carried`: the part
    of it that no mounted output has, as {"at", "z"} of a frame. `cache`: slugs of mounted data
    sets that hold what a host's cache would (`data/<fingerprint>`, `models/…`); `secrets`: the slug
    of the one that holds the secrets' values, None where the run has none. `newest_attempt`: the
    highest number of an attempt that the operator's side has anything of; later ones get higher
    numbers, also where the journal that was carried does not tell of it yet.
    """

    run_id: str
    number: int
    limit_s: float
    margin_s: float
    previous: str | None = None
    journal_bytes: int = 0
    carried: Mapping[str, Any] | None = None
    cache: tuple[str, ...] = ()
    secrets: str | None = None
    newest_attempt: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"v": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> KernelOrder:
        """Fields it doesn't know are ignored."""
        names = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        names["cache"] = tuple(names.get("cache") or ())
        return cls(**names)
