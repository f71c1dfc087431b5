"""Who has to agree before something costs money or destroys: a quote, and a person's word on it.

A service makes the quote; the face it was called through brings the word (DESIGN, faces, rule 4).
No word comes from the model: a client that can't ask its user is told of `trainmaster approve`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

Action = Literal["provision", "release", "clean"]


@dataclass(frozen=True, slots=True)
class Quote:
    """What somebody is asked to agree to.

    `asked` tells this request from any other (an approval is good for exactly this one), `text` is
    what is shown, `usd` the most that it may come to, 0 for what costs nothing.
    """

    action: Action
    asked: str
    text: str
    usd: float = 0.0


# Who agreed, for the record: `--yes`, `prompt`, `elicitation`, `approval ID`, `allowance`.
# Raises SpendError (`CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`) where nobody did.
Confirm = Callable[[Quote], Awaitable[str]]


async def agreed(_quote: Quote) -> str:
    """For a caller who has the person's word already: `--yes`."""
    return "--yes"
