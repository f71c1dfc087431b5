"""A run's identity and what is on record about it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainer_runtime.core.config import ConfigDocument, RunConfig
from trainer_runtime.core.protocol.lines import ATTACHED

# Base 32 without padding, lower case: no vowels get lost, nothing needs quoting anywhere.
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}-[a-z2-7]{6}")


@dataclass(frozen=True)  # without slots: `config` is parsed when it is first asked for
class Run:
    """One training, as the operator's side has it on record.

    `document` is the resolved configuration that its first attempt started from, as JSON, `plan`
    the plan as it was shown. `closed`: ended, and everything the box had to say was read.
    """

    run_id: str
    name: str
    created_t: float
    host: str
    placement: int
    spec: str
    document: ConfigDocument
    plan: Mapping[str, Any]
    labels: Mapping[str, str]
    closed: bool
    cleaned: bool

    @property
    def is_attached(self) -> bool:
        """Whether others started the training, and it is only watched."""
        return self.document.get("framework") == ATTACHED

    @cached_property
    def config(self) -> RunConfig:
        """The configuration, parsed.

        Raises:
            DecodingError: a field holds what it can't.
        """
        return RunConfig.parse(self.document)


def new_run_id(name: str) -> str:
    """`<name>-<6 base32 characters>`; thirty random bits tell runs of one name apart."""
    return f"{name}-{''.join(secrets.choice(_ALPHABET) for _ in range(6))}"
