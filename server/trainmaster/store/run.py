"""The record of a run."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.lines import ATTACHED

if TYPE_CHECKING:
    from trainer_runtime.core.config import CheckpointConfig, ConfigDocument, RunConfig

# Base 32 in lower case: safe in file names, shells and URLs without quoting.
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}-[a-z2-7]{6}")


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


def new_run_id(name: str) -> str:
    """`<name>-<6 base32 characters>`; thirty random bits distinguish runs of one name."""
    return f"{name}-{''.join(secrets.choice(_ALPHABET) for _ in range(6))}"
