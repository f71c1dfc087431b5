"""The state that the client requests of a placement: the contents of `desired.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.decoding import JsonRecord
from trainer_runtime.core.protocol.lines import FORMAT_VERSION
from trainer_runtime.core.protocol.states import DesiredState

# In a run's folder: what its client has on record, sealed; for a client that lost it.
RECORD = "record.json"
DEFAULT_GRACE_S = 120.0
DETACH = "detach"  # the `why` of a stop that detaches from an attached training


@dataclass(frozen=True, slots=True)
class Desired(JsonRecord):
    """One request. A higher `generation` is a newer one; the host answers each once.

    `mode` and `step` say what a start resumes from (`latest`, `best`, `step`, `scratch`), `set`
    what it changes in the last attempt's configuration, `skip` which data it leaves out from then
    on (as `Decision.skip` in core/policy/recovery.py), `why` who asked for it. `grace_s`: seconds
    between SIGTERM and SIGKILL of a stop.
    """

    state: DesiredState
    generation: int
    mode: str = "latest"
    step: int | None = None
    set: Mapping[str, object] = field(default_factory=dict)
    skip: Mapping[str, int] | None = None
    why: str = "launch"
    grace_s: float = DEFAULT_GRACE_S

    def to_dict(self) -> dict[str, Any]:
        return {"v": FORMAT_VERSION, **super(Desired, self).to_dict()}
