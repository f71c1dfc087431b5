"""The record of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.lines import ATTACHED

if TYPE_CHECKING:
    from trainer_runtime.core.config import CheckpointConfig, ConfigDocument, RunConfig


@dataclass(frozen=True)  # without slots: what is parsed when it is first asked for
class Run:
    """One training, as the client has recorded it.

    `document` is the resolved configuration as JSON, `plan` the plan as it was shown. `placement`:
    the number of its current placement. `closed`: it ended, and its files were read to the end.
    """

    run_id: str
    name: str
    created_t: float
    host: str
    spec: str
    document: ConfigDocument
    plan: Mapping[str, Any]
    labels: Mapping[str, str]
    placement: int = 1
    closed: bool = False
    cleaned: bool = False

    @property
    def is_attached(self) -> bool:
        """Whether Trainmaster monitors a training that it did not start."""
        return self.document.get("framework") == ATTACHED

    @cached_property
    def checkpoint(self) -> CheckpointConfig:
        """The part of `config` that a status needs.

        Raises:
            DecodingError: a field holds what it can't.
        """
        from trainer_runtime.core.config import PLACE, CheckpointConfig

        return CheckpointConfig.of(Fields(self.document, PLACE).section("checkpoint"))

    @cached_property
    def config(self) -> RunConfig:
        """The configuration, parsed.

        Raises:
            DecodingError: a field holds what it can't.
        """
        from trainer_runtime.core.config import RunConfig  # lists and most answers need no more

        return RunConfig.parse(self.document)
