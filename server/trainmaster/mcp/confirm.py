"""Who agrees to what a tool would spend or destroy: a word given before, or the client's user.

The service makes its quote in the middle of the call, so the question is asked there. Protocols up
to 2025-11-25 ask within the call; since 2026-07-28 the call ends with the question and comes again
with the answer. Each question is a quote on record, whose id goes along: an answer counts for that
quote alone, once, and not where the request would cost more by now.

Over HTTP the holder of the access token answers a form, and that may be a program. Such an answer
counts for what the token's role is about, never for what leaves the policy of the home's owner.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import anyio
from mcp.server.elicitation import (
    AcceptedElicitation,
    CancelledElicitation,
    ElicitationResult,
    render_elicitation_schema,
)
from mcp.shared.exceptions import MCPError
from mcp.types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel, Field

from trainmaster.errors.confirmation import Action
from trainmaster.errors.errors import SpendError, TrainmasterError
from trainmaster.mcp.caller import caller_of
from trainmaster.mcp.definition import ToolContext, workspace_of

if TYPE_CHECKING:
    from trainmaster.answers.base import Answer
    from trainmaster.errors.confirmation import Confirm, Quote
    from trainmaster.sync.workspace import Workspace

    Answered = TypeVar("Answered", bound=Answer)

# Of a call, from its beginning; the rest of its 45 s is for doing what was agreed to.
ASK_UNTIL_S = 28.0
_ASKED_AND_ANSWERED_SINCE = "2026-07-28"
_KEY = "agreement"
# What the holder of an access token may agree to.
_OF_ROLES: frozenset[Action] = frozenset({"provision", "release", "clean"})
# By contract nothing was created where a service ends with these. A price that turned out higher
# than quoted may have been that of an instance that was released.
_NOTHING_CAME_OF_IT = frozenset({"NO_CAPACITY", "SPEND_CAP"})


class Agreement(BaseModel):
    """What the user is asked."""

    agree: bool = Field(description="Do this")


async def confirmed(
    context: ToolContext,
    call: Callable[[Workspace, Confirm], Awaitable[Answered]],
    *,
    ask_until_s: float = ASK_UNTIL_S,
) -> Answered | InputRequiredResult:
    """What `call` answers once somebody has agreed to its quote; or the question, to be answered by
    the same call again.

    Raises:
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`; and whatever `call` raises.
    """
    workspace = workspace_of(context)
    asking = _Asking(context, workspace, time.monotonic() + ask_until_s)
    try:
        return await call(workspace, asking.confirm)
    except _Question as question:
        return question.result
    except TrainmasterError as error:
        if error.code in _NOTHING_CAME_OF_IT:
            asking.give_back()
        raise


def can_ask(context: ToolContext) -> bool:
    """Whether the client shows forms to its user."""
    capabilities = context.client_capabilities
    asking = capabilities.elicitation if capabilities is not None else None
    return asking is not None and (asking.form is not None or asking.url is None)


class _Question(Exception):
    """Ends a call, before anything was done, with what is to be asked."""

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__("a question to the user")
        self.result = result


class _Asking:
    """One call's way to somebody's word. `until`: of the monotonic clock."""

    def __init__(self, context: ToolContext, workspace: Workspace, until: float) -> None:
        self._context = context
        self._workspace = workspace
        self._records = workspace.control.approvals
        self._until = until
        self._taken: str | None = None
        self._began_t = time.time()

    async def confirm(self, quote: Quote) -> str:
        """A `Confirm`: words given before count first, for they were given to be used."""
        from trainmaster.machines.approvals import BY_COMMAND, confirmation_required, take_agreement

        if (taken := take_agreement(self._workspace, quote)) is not None:
            self._taken = taken.id
            return f"approval {taken.id}" if taken.by == BY_COMMAND else str(taken.by)
        if caller_of(self._context) is not None and quote.action not in _OF_ROLES:
            raise confirmation_required(self._workspace, quote, of="the server's owner")
        if not can_ask(self._context):
            raise confirmation_required(self._workspace, quote)
        quote_id = self._records.quote(quote, time.time()).id
        if (self._context.protocol_version or "") < _ASKED_AND_ANSWERED_SINCE:
            answer = await self._ask_within_the_call(quote)
        else:
            quote_id, answer = self._answer_or_question(quote, quote_id)
        if answer is None:
            raise confirmation_required(self._workspace, quote)
        return self._take(quote, quote_id, answer)

    def give_back(self) -> None:
        """Let the agreement count again, unless it led to an instance, which has cost money."""
        control = self._workspace.control
        began = [(rental.intended_t, rental.created_t) for rental in control.instances.all()]
        began += [(rental.intended_t, rental.created_t) for rental in control.volumes.all()]
        has_cost = any(t >= self._began_t and created_t is not None for t, created_t in began)
        if self._taken is not None and not has_cost:
            self._records.give_back(self._taken)

    async def _ask_within_the_call(self, quote: Quote) -> ElicitationResult[Agreement] | None:
        """None where there was no answer in time, or none that means anything."""
        with anyio.move_on_after(max(0.0, self._until - time.monotonic())):
            try:
                return await self._context.elicit(quote.text, Agreement)
            except (ValueError, MCPError):
                return None
        return None

    def _answer_or_question(
        self, quote: Quote, quote_id: str
    ) -> tuple[str, ElicitationResult[Agreement] | None]:
        """The answer that came with this call and the quote that it is about.

        Raises: _Question, where none came, or what was agreed to is another quote by now. Who
            declined is not asked again.
        """
        asked = self._context.request_state
        answer = (self._context.input_responses or {}).get(_KEY)
        shown = self._records.find(asked) if asked else None
        if shown is None or not isinstance(answer, ElicitResult):
            raise _Question(_question(quote, quote_id))
        understood = _understood(answer)
        if not shown.covers(quote):
            if _agrees(understood):
                raise _Question(_question(quote, quote_id))
            self._records.withdraw(quote_id, time.time())
        return shown.id, understood

    def _take(self, quote: Quote, quote_id: str, answer: ElicitationResult[Agreement]) -> str:
        from trainmaster.machines.approvals import confirmation_required

        if not _agrees(answer):
            self._records.withdraw(quote_id, time.time())
            raise _declined(quote)
        taken = self._records.take_answer(quote_id, quote, "elicitation", time.time())
        if taken is None:
            raise confirmation_required(self._workspace, quote)
        self._taken = taken.id
        return "elicitation"


def _question(quote: Quote, quote_id: str) -> InputRequiredResult:
    form = ElicitRequestFormParams(
        message=quote.text, requested_schema=render_elicitation_schema(Agreement)
    )
    return InputRequiredResult(
        input_requests={_KEY: ElicitRequest(params=form)}, request_state=quote_id
    )


def _understood(answer: ElicitResult) -> ElicitationResult[Agreement] | None:
    if answer.action != "accept":
        return CancelledElicitation()
    try:
        return AcceptedElicitation(data=Agreement.model_validate(answer.content))
    except ValueError:
        return None


def _agrees(answer: ElicitationResult[Agreement] | None) -> bool:
    return isinstance(answer, AcceptedElicitation) and answer.data.agree


def _declined(quote: Quote) -> SpendError:
    return SpendError(
        "CONFIRMATION_DECLINED",
        f"The user was asked and did not agree: {quote.text} Nothing was done.",
        "Ask the user what to do instead; don't ask for the same again.",
    )
