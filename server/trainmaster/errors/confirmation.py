"""Confirmations: a person approves a quote before something costs money, deletes data, reads what
is not ours or leaves an agent's policy.

A service makes the quote; the face it was called through gets the approval. It never comes from the
model: a client that can't ask its user is referred to `trainmaster approve`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from trainmaster.errors.errors import PolicyError

Action = Literal[
    "provision",
    "release",
    "clean",
    "plan",
    "launch",
    "attach",
    "adopt",
    "resume",
    "add_host",
    "trust",
    "inspect",
]


@dataclass(frozen=True, slots=True)
class Quote:
    """What a person is asked to approve.

    `asked` identifies the request (an approval is valid for this one only), `text` is shown, `usd`
    is the maximum cost, 0 for what costs nothing. `by_person`: no allowance covers it.
    """

    action: Action
    asked: str
    text: str
    usd: float = 0.0
    by_person: bool = False


def digest_of_request(*values: object) -> str:
    """Identifies a request by all its values, in full: with another value it is another request."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


# Who approved, for the record: `--yes`, `prompt`, `elicitation`, `approval ID`, `allowance`.
# Raises SpendError (`CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`) without an approval.
Confirm = Callable[[Quote], Awaitable[str]]


def open_questions(checks: Iterable[Callable[[], object]], confirm: Confirm | None) -> list[str]:
    """What a person has to be asked for these checks of a policy to be passed over.

    Raises:
        PolicyError: of a check that nobody may pass over, or where nobody can be asked.
    """
    questions = []
    for check in checks:
        try:
            check()
        except PolicyError as error:
            if error.question is None or confirm is None:
                raise
            questions.append(error.question)
    return questions


async def agreed(_quote: Quote) -> str:
    """For a caller that has the approval already: `--yes`."""
    return "--yes"
