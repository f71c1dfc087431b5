"""Approval of quotes by the user in a terminal.

No tool can approve. A tool can only use an approval that was given; without one it returns the
command with which the user approves.
"""

import time

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import in_utc
from trainmaster.answers.base import Answer, WholeAnswer
from trainmaster.answers.fields import field
from trainmaster.errors.confirmation import Quote
from trainmaster.errors.errors import SpendError
from trainmaster.settings.settings import read_settings
from trainmaster.store.control.approvals import Approval
from trainmaster.sync.workspace import Workspace

BY_COMMAND = "approve"


class ApprovalAnswer(Answer):
    id: str
    action: str
    text: str
    usd: float = field(description="the maximum cost")
    expires_at: str
    approved: bool


class ApprovalsAnswer(WholeAnswer):
    waiting: list[ApprovalAnswer]


async def list_waiting(workspace: Workspace) -> ApprovalsAnswer:
    """The quotes that can be approved, oldest first."""
    rows = workspace.control.approvals.waiting(time.time())
    return ApprovalsAnswer(waiting=[_answer(row) for row in rows])


async def find_quote(workspace: Workspace, approval_id: str) -> ApprovalAnswer:
    """A quote that can be approved, or was approved.

    Raises:
        SpendError: `APPROVAL_UNKNOWN`; also for one that was used, or has expired.
    """
    row = workspace.control.approvals.find(approval_id)
    if row is None or row.used_t is not None or row.expires_t <= time.time():
        raise _unknown(approval_id, row)
    return _answer(row)


async def approve(workspace: Workspace, approval_id: str) -> ApprovalAnswer:
    """Record the user's approval: the quoted request may be made once, until the quote expires.
    Idempotent.

    Raises:
        SpendError: `APPROVAL_UNKNOWN`; also for one that was used, or has expired.
    """
    row = workspace.control.approvals.approve(approval_id, BY_COMMAND, time.time())
    if row is None:
        raise _unknown(approval_id, workspace.control.approvals.find(approval_id))
    return _answer(row)


def take_agreement(workspace: Workspace, quote: Quote) -> Approval | None:
    """Use up what allows a request without asking the user: an approval given before, or for an
    instance the allowance in the settings. None if neither covers it."""
    approved = workspace.control.approvals.take(quote, time.time())
    if approved is not None or quote.action != "provision" or quote.by_person:
        return approved
    allowance_usd = read_settings(workspace.home).agent_may_spend_usd
    return workspace.control.approvals.take_from_allowance(quote, allowance_usd, time.time())


def confirmation_required(
    workspace: Workspace, quote: Quote, *, of: str = "the user"
) -> SpendError:
    """The refusal of a request without approval `of` somebody; records its quote for `approve`."""
    row = workspace.control.approvals.quote(quote, time.time())
    return SpendError(
        "CONFIRMATION_REQUIRED",
        f"{quote.text} This is not approved yet, and nothing was done.",
        f"Ask {of} to run {command('approve', row.id)} in a terminal, then call again with the "
        "same arguments.",
        retryable=True,
    )


def _unknown(approval_id: str, row: Approval | None) -> SpendError:
    message = f"No quote has the id {approval_id!r}."
    if row is not None:
        message = f"{row.id} was used already: an approval is valid once."
    if row is not None and row.used_t is None:
        message = f"{row.id} has expired: a quote is valid for an hour, or until it is declined."
    return SpendError(
        "APPROVAL_UNKNOWN",
        message,
        f"{command('approve')} lists pending quotes; repeat the request for a new one.",
    )


def _answer(row: Approval) -> ApprovalAnswer:
    return ApprovalAnswer(
        id=row.id,
        action=row.action,
        text=row.text,
        usd=row.usd,
        expires_at=in_utc(row.expires_t),
        approved=row.approved_t is not None,
    )
