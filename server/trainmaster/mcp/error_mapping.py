"""The server class that holds every call to the rules: time limit, error text, lean content."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolResult,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    TextContent,
)
from pydantic import ValidationError

from trainer_runtime.core.decoding.limits import LARGEST_INTEGER, LEAST_INTEGER
from trainer_runtime.core.protocol.text import cleaned
from trainmaster.calls.shares import Shares
from trainmaster.calls.work import Work, working
from trainmaster.errors.advice import Face, shown_by
from trainmaster.errors.errors import (
    InternalError,
    PolicyError,
    TrainmasterError,
    UsageError,
    unusable_path,
)
from trainmaster.home.run_names import meaning_of, names_meant
from trainmaster.mcp.caller import Caller, caller_of
from trainmaster.mcp.definition import OpenWorkspace, only_reading
from trainmaster.mcp.progress import heartbeats
from trainmaster.settings.roles import Role
from trainmaster.settings.yaml12 import MAX_BYTES

# A spec is the longest argument, and a list of words the deepest.
LONGEST_TEXT = MAX_BYTES
MAX_DEPTH = 8
MOST_VALUES = 2000
# Clients push calls to the background or give them up between 1 and 4 minutes; none before this.
LONGEST_CALL_S = 45.0
# Reading ends before its call, so that it can still answer; within it no disk is read whole.
_SHARE_OF_READING = 0.85
_MOST_READ_BYTES = 64 << 30
_LONGEST_NAME = 80
_MOST_PROBLEMS = 5
_AWAITS = frozenset({"wait_for_event"})


class AnsweringServer(MCPServer[OpenWorkspace]):
    """Answers every failure with `CODE: what happened. Fix: what to do. retryable=yes|no`.

    Clients drop structured content on errors, and the SDK replaces the text of exceptions that it
    doesn't know, so the text is made here, for all tools.
    """

    longest_call_s = LONGEST_CALL_S
    # What is waited of it until the metrics database is rebuilt.
    longest_rebuild_s = 30.0
    # Of callers in what reads files.
    shares: Shares | None = None
    # Between two reports of a call's progress: clients give up a call that is silent for long.
    heartbeat_s = 2.0
    # The tools whose calls the home's action log records.
    acting: frozenset[str] = frozenset()
    # Whether the policy is that of a caller who only reads.
    only_reads = False
    # Tools that this server's callers may not use, with the role that may.
    beyond: Mapping[str, Role] = MappingProxyType({})
    # For whom advice is worded: the tools of this server, and the command line of its home.
    face = Face(("trainmaster",))

    async def run_stdio_async(self) -> None:
        """Serve on stdin and stdout; a line that can't be read is answered too."""
        from trainmaster.mcp.unreadable import answering_stdio

        lowlevel = self._lowlevel_server
        async with answering_stdio() as (incoming, outgoing):
            await lowlevel.run(incoming, outgoing, lowlevel.create_initialization_options())

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        context: Context[OpenWorkspace, Any] | None = None,
    ) -> GetPromptResult | InputRequiredResult:
        """There are none; the SDK would report an unknown one as a defect of the server.

        Raises: MCPError.
        """
        refused = UsageError("BAD_ARGUMENT", "This server has no prompts.", "Call a tool.")
        raise MCPError(code=INVALID_PARAMS, message=str(refused))

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        context: Context[OpenWorkspace, Any] | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool by name. An argument that is null counts as not given.

        Raises: ToolError, with the whole error as its text.
        """
        with shown_by(self.face), only_reading(self.only_reads), names_meant() as meant:
            result = await self._answer(name, arguments, context)
        if meant and isinstance(result, CallToolResult):
            words = " ".join(meaning_of(*pair) for pair in meant.items())
            result.content.append(TextContent(type="text", text=words))
        return result

    async def _answer(
        self,
        name: str,
        arguments: dict[str, Any],
        context: Context[OpenWorkspace, Any] | None,
    ) -> CallToolResult | InputRequiredResult:
        present = {key: value for key, value in arguments.items() if value is not None}
        try:
            refuse_unusable(present)
        except UsageError as refused:
            raise ToolError(str(refused)) from refused
        try:
            with (
                self._logged(name, present, context),
                anyio.fail_after(self.longest_call_s),
                working(self._work_of(context)),
            ):
                self._refuse_beyond(name, context)
                async with heartbeats(context, self.heartbeat_s):
                    result = await self._called(name, present, context)
                _record_result(result, caller_of(context))
        except UnexpectedToolError as failure:
            raise _unexpected(failure, context) from failure.__cause__
        except ToolError as failure:
            raise ToolError(str(await self._refusal(name, failure))) from failure
        except TrainmasterError as refusal:  # of the home, before the tool was called
            raise ToolError(str(refusal)) from refusal
        except TimeoutError as failure:
            raise ToolError(str(_too_slow(name, self.longest_call_s))) from failure
        return _compact(result)

    def _work_of(self, context: Context[OpenWorkspace, Any] | None) -> Work:
        caller = caller_of(context)
        return Work(
            caller.user if caller is not None else "",
            within_s=self.longest_call_s * _SHARE_OF_READING,
            most_bytes=_MOST_READ_BYTES,
            shares=self.shares,
        )

    def _refuse_beyond(self, name: str, context: Context[OpenWorkspace, Any] | None) -> None:
        if name not in self.beyond:
            return
        caller = caller_of(context)
        raise PolicyError(
            "ROLE_TOO_LOW",
            f"{name} needs the role {self.beyond[name]!r}; your access token has "
            f"{caller.role if caller else 'read'!r}.",
            "Ask the server's owner for a token with that role, or use the tools that are listed.",
        )

    async def _called(
        self, name: str, arguments: dict[str, Any], context: Context[OpenWorkspace, Any] | None
    ) -> CallToolResult | InputRequiredResult:
        """What only reads is called again where it met damage: by then that is set aside. What acts
        or awaits events does so by complete records."""
        if context is not None and (name in self.acting or name in _AWAITS):
            await context.request_context.lifespan_context.rebuilt(self.longest_rebuild_s)
        try:
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError as failure:
            storage = _of_the_database(failure.__cause__, context)
            if name in self.acting or storage is None or storage.code != "DATABASE_DAMAGED":
                raise
        return await super().call_tool(name, arguments, context)

    @contextmanager
    def _logged(
        self, name: str, arguments: Mapping[str, Any], context: Context[OpenWorkspace, Any] | None
    ) -> Iterator[None]:
        caller = caller_of(context)
        if context is None or (name not in self.acting and caller is None):
            yield
            return
        from trainmaster.store.action_log import logged_action

        home = context.request_context.lifespan_context.home
        client, user = _client_of(context, caller), caller.name if caller is not None else ""
        with logged_action(home, "mcp", client, _action(name), arguments, user=user):
            try:
                yield
            except ToolError as failure:
                if failure.__cause__ is None or isinstance(failure.__cause__, ValidationError):
                    _record_refusal(caller)
                raise

    async def _refusal(self, name: str, failure: ToolError) -> TrainmasterError:
        """What the SDK refused by itself: an unknown tool, or arguments that don't validate."""
        schemas = {tool.name: tool.input_schema for tool in await self.list_tools()}
        cause = failure.__cause__
        if name in schemas and isinstance(cause, ValidationError):
            return _bad_arguments(name, schemas[name], cause)
        return UsageError(
            "BAD_ARGUMENT",
            f"Unknown tool {name[:_LONGEST_NAME]!r}.",
            f"Call one of: {', '.join(schemas)}.",
        )


def _record_result(result: CallToolResult | InputRequiredResult, caller: Caller | None) -> None:
    """Name the run that a logged call made. A call that ends with a question did not act yet."""
    from trainmaster.store.action_log import discard_action, record_answer, record_outcome

    if not isinstance(result, InputRequiredResult):
        record_answer(result.structured_content)
    elif caller is None:
        discard_action()
    else:
        record_outcome("asked")


def _record_refusal(caller: Caller | None) -> None:
    """A call whose tool or arguments the SDK refused: it acted on nothing."""
    from trainmaster.store.action_log import discard_action, record_outcome

    if caller is None:
        discard_action()
    else:
        record_outcome("BAD_ARGUMENT")


def _action(name: str) -> str:
    """A tool's name as it is logged; what a client made up is cut and cleaned."""
    return "".join(letter for letter in name[:_LONGEST_NAME] if letter.isalnum() or letter == "_")


def _client_of(context: Context[OpenWorkspace, Any], caller: Caller | None) -> str:
    """The name and version that the client gave, and over HTTP its address."""
    parameters = context.session.client_params
    info = f"{parameters.client_info.name} {parameters.client_info.version}" if parameters else ""
    return cleaned(f"{info} ({caller.address})" if caller is not None else info).strip()


def _unexpected(
    failure: UnexpectedToolError, context: Context[OpenWorkspace, Any] | None
) -> ToolError:
    """What the tool's body raised: one of ours as it stands, anything else as a defect.

    A defect stays an `UnexpectedToolError`, for which the SDK logs the traceback to stderr.
    """
    cause = failure.__cause__
    if isinstance(cause, TrainmasterError):
        return ToolError(str(cause))
    path = unusable_path(cause)
    if path is not None:
        return ToolError(str(path))
    storage = _of_the_database(cause, context)
    if storage is not None:
        return ToolError(str(storage))
    defect = InternalError(
        "INTERNAL",
        f"Trainmaster failed with {type(cause).__name__}.",
        "See the server's stderr for the traceback; `trainmaster doctor` checks the machine.",
    )
    return UnexpectedToolError(str(defect))


def _of_the_database(
    cause: BaseException | None, context: Context[OpenWorkspace, Any] | None
) -> TrainmasterError | None:
    import sqlite3

    if not isinstance(cause, sqlite3.Error) or context is None:
        return None
    return context.request_context.lifespan_context.storage_error(cause)


def _bad_arguments(name: str, schema: dict[str, Any], cause: ValidationError) -> UsageError:
    problems = [
        f"{'.'.join(map(str, error['loc']))[:_LONGEST_NAME]}: {error['msg']}"
        for error in cause.errors(include_url=False, include_input=False)[:_MOST_PROBLEMS]
    ]
    required = schema.get("required", [])
    accepted = (
        f"{argument} (required)" if argument in required else argument
        for argument in schema["properties"]
    )
    return UsageError(
        "BAD_ARGUMENT",
        f"{'; '.join(problems)}.",
        f"{name} takes {', '.join(accepted)}.",
        field=str(cause.errors()[0]["loc"][0]),
    )


def _too_slow(name: str, limit_s: float) -> InternalError:
    return InternalError(
        "TIMEOUT",
        f"{name} took more than {limit_s:g} s and was given up.",
        "See how things stand first (get_run, list_hosts); a command in a shell has no such limit.",
        retryable=True,
    )


def _compact(result: CallToolResult | InputRequiredResult) -> CallToolResult | InputRequiredResult:
    """The text says the same as the structured content, in as few characters as JSON takes.

    Pictures stay, behind it.
    """
    if isinstance(result, CallToolResult) and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False, separators=(",", ":"))
        pictures = [block for block in result.content if isinstance(block, ImageContent)]
        result.content = [TextContent(type="text", text=text), *pictures]
    return result


def refuse_unusable(arguments: Mapping[str, object]) -> None:
    """Refuse what no path, name, number or database can hold.

    Raises:
        UsageError: `BAD_ARGUMENT`, which names the argument.
    """
    for name, value in arguments.items():
        problem = _problem_of_text(name) or _problem(value)
        if problem is not None:
            raise UsageError(
                "BAD_ARGUMENT",
                f"The argument {name[:80]!r} {problem}.",
                "Give plain text without control codes, and numbers of at most 64 bits.",
                field=name,
            )


def _problem(argument: object) -> str | None:
    level: list[object] = [argument]
    for _ in range(MAX_DEPTH):
        if len(level) > MOST_VALUES:
            return f"has more than {MOST_VALUES:,} values"
        for value in level:
            problem = _problem_of(value)
            if problem is not None:
                return problem
        level = [item for value in level for item in _items(value)]
        if not level:
            return None
    return f"is nested deeper than {MAX_DEPTH} levels"


def _problem_of(value: object) -> str | None:
    if isinstance(value, str):
        return _problem_of_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a finite number"
    if isinstance(value, int) and not LEAST_INTEGER <= value <= LARGEST_INTEGER:
        return "is an integer beyond 64 bits"
    return None


def _problem_of_text(text: str) -> str | None:
    if len(text) > LONGEST_TEXT:
        return f"is longer than {LONGEST_TEXT:,} characters"
    if "\0" in text:
        return "holds a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair"
    return None


def _items(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return (*value.keys(), *value.values())
    return value if isinstance(value, list) else ()
