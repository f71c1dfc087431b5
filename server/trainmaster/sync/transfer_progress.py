"""The progress of a run's transfers: one small file, replaced by the transferring process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainmaster.home.paths import Home

UPLOAD = "upload"
# Of the kinds of transfer, those that an attempt's start waits for.
AWAITED = frozenset({UPLOAD, "wheels", "model", "tokenizer"})


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """`what` is being transferred, or was last: `done_bytes` of `total_bytes` at Unix time `t`.

    `error`: code and message of what blocks it. `finished`: by kind of transfer, the attempt for
    which nothing is left to do.
    """

    what: str
    done_bytes: int = 0
    total_bytes: int = 0
    bytes_per_s: float = 0.0
    t: float = 0.0
    active: bool = True
    error: Mapping[str, str] | None = None
    finished: Mapping[str, int] = field(default_factory=dict)


def read_progress(home: Home, run_id: str) -> TransferProgress | None:
    """The recorded progress; None where there is none, or it can't be read."""
    try:
        row: dict[str, Any] = json.loads(home.transfer_progress(run_id).read_bytes())
        fields = {name: row[name] for name in TransferProgress.__dataclass_fields__ if name in row}
        return TransferProgress(**fields)
    except (OSError, ValueError, TypeError):
        return None


def write_progress(home: Home, run_id: str, progress: TransferProgress) -> None:
    """Replace the recorded progress atomically. The caller holds the transfer lock."""
    path = home.transfer_progress(run_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(progress)))
    temporary.replace(path)  # not through to the disk: what is lost by that is found out again


def finished_attempt(home: Home, run_id: str, what: str) -> int:
    """The attempt up to which a kind of transfer has nothing left to do, 0 for none."""
    progress = read_progress(home, run_id)
    return progress.finished.get(what, 0) if progress is not None else 0
