"""What a kernel's session is to do: `kernel.json`, packed into the script that is pushed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainer_runtime.core.decoding import JsonRecord

FORMAT_VERSION = 1
ORDER = "kernel.json"
# Below the working folder, and so below the next session's input.
RUN_FOLDER = "run"
# At the root of a data set with an entry of the cache: what `.complete` in the entry is to hold.
CACHE_MARK = "complete.json"
# What the data set of a run's secrets holds, each as the run's own file of that name with a dot.
SECRET_FILES = ("secrets.json", "alerts.json")


@dataclass(frozen=True, slots=True)
class CarriedJournal(JsonRecord):
    """A part of the journal from byte `at` on; `z` is deflated and in base 64."""

    at: int
    z: str


@dataclass(frozen=True, slots=True)
class KernelOrder(JsonRecord):
    """One session of a run.

    `number` counts the run's sessions from 1. `limit_s`: Kaggle's time limit. The trainer is
    asked to save `margin_s` and twice the longest save so far before that. `previous`: the slug
    below the input folder that an earlier session's output is mounted under, None for a run that
    begins. `journal_bytes`: how much of the journal the client has; `carried`: the part
    of it that no mounted output has, as {"at", "z"} of a frame. `cache`: slugs of mounted data
    sets that hold what a host's cache would (`data/<fingerprint>`, `models/…`); `secrets`: the slug
    of the one that holds the secrets' values, None where the run has none. `newest_attempt`: the
    highest number of an attempt that the client has any file of; later ones get higher
    numbers, even if the carried journal does not mention it yet.
    """

    run_id: str
    number: int
    limit_s: float
    margin_s: float
    previous: str | None = None
    journal_bytes: int = 0
    carried: CarriedJournal | None = None
    cache: tuple[str, ...] = ()
    secrets: str | None = None
    newest_attempt: int = 0
    extra: Mapping[str, object] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"v": FORMAT_VERSION, **asdict(self)}
