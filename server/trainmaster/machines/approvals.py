"""Quotes that wait for a person's word, and the word given in a terminal.

Nothing here is reached by a tool but what takes a word that was given: the model can ask for one,
and be told where it is given.
"""

from __future__ import annotations

import time

from pydantic import Field

from trainer_runtime.core.protocol.duration import in_utc
from trainmaster.store.control.approvals import Approval
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.base import Answer
from trainmaster.words.confirmation import Quote
from trainmaster.words.errors import SpendError
from trainmaster.words.settings import read_settings

BY_COMMAND = "approve"


class ApprovalAnswer(Answer):
    id: str
    action: str
    text: str
    usd: float = Field(description="the most that it may come to")
    expires_at: str
    approved: bool


class ApprovalsAnswer(Answer):
    waiting: list[ApprovalAnswer]


async def list_waiting(workspace: Workspace) -> ApprovalsAnswer:
    """The quotes that somebody may approve, oldest first."""
    rows = workspace.control.approvals.waiting(time.time())
    return ApprovalsAnswer(waiting=[_told(row) for row in rows])


async def look_up(workspace: Workspace, approval_id: str) -> ApprovalAnswer:
    """A quote that can be approved, or was.

    Raises:
        SpendError: `APPROVAL_UNKNOWN`; also for one that was used, or is out of date.
    """
    row = workspace.control.approvals.find(approval_id)
    if row is None or row.used_t is not None or row.expires_t <= time.time():
        raise _unknown(approval_id, row)
    return _told(row)


async def approve(workspace: Workspace, approval_id: str) -> ApprovalAnswer:
    """Note a person's word: the request that was quoted may be made once, until the quote expires.
    May be repeated.

    Raises:
        SpendError: `APPROVAL_UNKNOWN`; also for one that was used, or is out of date.
    """
    row = workspace.control.approvals.approve(approval_id, BY_COMMAND, time.time())
    if row is None:
        raise _unknown(approval_id, workspace.control.approvals.find(approval_id))
    return _told(row)


def take_agreement(workspace: Workspace, quote: Quote) -> Approval | None:
    """What allows a request without anybody being asked now, used up by this: an approval that was
    given for it, or for a box the settings' allowance. None where there is nothing of the kind."""
    approved = workspace.control.approvals.take(quote, time.time())
    if approved is not None or quote.action != "provision":
        return approved
    allowance_usd = read_settings(workspace.home).agent_may_spend_usd
    return workspace.control.approvals.take_from_allowance(quote, allowance_usd, time.time())


def confirmation_required(workspace: Workspace, quote: Quote) -> SpendError:
    """The refusal of a request that nobody has agreed to, which is on record from now on."""
    row = workspace.control.approvals.quote(quote, time.time())
    return SpendError(
        "CONFIRMATION_REQUIRED",
        f"{quote.text} Nobody has agreed to that yet, and nothing was done.",
        f"Ask the user to run `trainmaster approve {row.id}` in a terminal, then call again with "
        "the same arguments.",
        retryable=True,
    )


def _unknown(approval_id: str, row: Approval | None) -> SpendError:
    told = f"No quote has the id {approval_id!r}."
    if row is not None:
        told = f"{row.id} was used already: an approval is good once."
    if row is not None and row.used_t is None:
        told = f"{row.id} is out of date: a quote holds for an hour, and not beyond a no."
    return SpendError(
        "APPROVAL_UNKNOWN",
        told,
        "`trainmaster approve` lists those that wait; what is asked for again is quoted anew.",
    )


def _told(row: Approval) -> ApprovalAnswer:
    return ApprovalAnswer(
        id=row.id,
        action=row.action,
        text=row.text,
        usd=row.usd,
        expires_at=in_utc(row.expires_t),
        approved=row.approved_t is not None,
    )
