"""What a tool is made of here: a service call, its hints, and a schema that refuses extras."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations

from trainmaster.answers.base import Answer
from trainmaster.answers.validation import adapter_of
from trainmaster.home.paths import Home
from trainmaster.mcp.maintenance import Background
from trainmaster.store.private_home import open_home

if TYPE_CHECKING:
    import sqlite3

    from trainmaster.errors.errors import StorageError
    from trainmaster.sync.workspace import Workspace


def _hints(
    *held: Literal["read_only", "destructive", "idempotent", "open_world"],
) -> ToolAnnotations:
    return ToolAnnotations(
        read_only_hint="read_only" in held,
        destructive_hint="destructive" in held,
        idempotent_hint="idempotent" in held,
        open_world_hint="open_world" in held,
    )


READS = _hints("read_only", "idempotent")
# Open-world: hubs, providers, receivers of messages, addresses that the call names.
READS_OUTSIDE = _hints("read_only", "idempotent", "open_world")
STARTS = _hints()
STARTS_OUTSIDE = _hints("open_world")
SUPERSEDES = _hints("destructive", "open_world")
BRINGS = _hints("idempotent")
# A newer version takes the place of what was downloaded before.
REPLACES = ENDS = _hints("destructive", "idempotent")


# What opens the workspace of an environment's home.
Opener = Callable[[Mapping[str, str]], AbstractContextManager["Workspace"]]
_only_reads: ContextVar[bool] = ContextVar("only_reads", default=False)


@contextmanager
def only_reading(is_so: bool) -> Iterator[None]:
    """Within, the policy is that of a caller who only reads, where `is_so`."""
    token = _only_reads.set(is_so)
    try:
        yield
    finally:
        _only_reads.reset(token)


class OpenWorkspace:
    """The server's workspace, opened by the first call that needs it.

    Not at start-up: a home that can't be opened is then reported as that call's error, where the
    model reads it, and listing tools touches no disk.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        closing: ExitStack,
        *,
        read_only: bool = False,
        opened: Opener | None = None,
    ) -> None:
        self._environment = environment
        self._closing = closing
        self._read_only = read_only
        self._opened = opened
        self._background = Background()
        self._workspace: Workspace | None = None

    @property
    def home(self) -> Home:
        """The home, whether its databases are open or not.

        Raises:
            StorageError: `HOME_NOT_PRIVATE`, `ROOT_NOT_WRITABLE`.
        """
        return open_home(self._environment)

    def get(self) -> Workspace:
        """The open workspace. Raises: TrainmasterError when the home can't be used."""
        if self._workspace is None or self._takes_more_again(self._workspace):
            from trainmaster.settings.policy import agent_policies
            from trainmaster.sync.workspace import open_workspace

            opened = (self._opened or open_workspace)(self._environment)
            self._workspace = self._closing.enter_context(opened)
            home, environment = self._workspace.home, self._environment
            acting = agent_policies(home, environment, reads_only=self._read_only)
            reading = agent_policies(home, environment, reads_only=True)
            self._workspace.policy_now = lambda: reading() if _only_reads.get() else acting()
            if not self._read_only and self._workspace.control.unwritable is None:
                self._background.begin(self._workspace)
        if self._workspace.unwritable is None and self._workspace.metrics.replay_due:
            from trainmaster.sync.rebuild import rebuild_behind

            rebuild_behind(self._workspace)
        return self._workspace

    def _takes_more_again(self, workspace: Workspace) -> bool:
        """Whether a home that could only be read when it was opened can be written by now."""
        from trainmaster.store.disk_space import takes_more

        return workspace.control.unwritable is not None and takes_more(workspace.home.root)

    async def rebuilt(self, within_s: float) -> None:
        """Wait until the metrics database is complete.

        Raises:
            StateError: `METRICS_BEING_REBUILT`.
            StorageError: the home can't be used.
        """
        import sqlite3

        try:
            if self.get().metrics.replay_due:
                from trainmaster.sync.rebuild import await_rebuilt

                await await_rebuilt(self.get(), within_s)
        except sqlite3.Error as error:
            raise self.storage_error(error) from error

    def storage_error(self, error: sqlite3.Error) -> StorageError:
        """What an error of a database means; a damaged one is opened again by the next call."""
        from trainmaster.store.database import storage_error

        known_error = storage_error(error, self.home.metrics_db)
        if known_error.code == "DATABASE_DAMAGED" and self._workspace is not None:
            self._workspace.reopen_metrics()
        return known_error

    async def disconnect(self) -> None:
        """End the background tasks and the connections to hosts."""
        await self._background.end()
        if self._workspace is not None:
            await self._workspace.disconnect()


ToolContext = Context[OpenWorkspace, Any]


def workspace_of(context: ToolContext) -> Workspace:
    """The workspace that this call's server works in."""
    return context.request_context.lifespan_context.get()


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool before it is registered; name, description and schemas come from `function`.

    `page`: the `ui://` resource by which clients with MCP Apps show its results.
    """

    function: Callable[..., Awaitable[Answer | CallToolResult | InputRequiredResult]]
    title: str
    hints: ToolAnnotations
    page: str | None = None

    @property
    def name(self) -> str:
        """As clients call it."""
        return self.function.__name__

    @property
    def only_reads(self) -> bool:
        """Whether a read-only server may offer it."""
        return self.hints.read_only_hint is True


_built: dict[tuple[object, ...], Tool] = {}


def build_tool(definition: Definition) -> Tool:
    """The SDK's tool, whose schema is lean and whose arguments must be known ones.

    Each is made once in a process, in 6 ms: the servers of several roles share it.
    """
    hints = definition.hints.model_dump().values()
    key = (definition.function, definition.title, definition.page, *hints)
    if key not in _built:
        _built[key] = _build(definition)
    return _built[key]


def build_tools(definitions: Iterable[Definition]) -> list[Tool]:
    """The tools of one server. A parameter's description stands at the first tool that has it:
    clients show their model the list as a whole."""
    described: set[tuple[str, str]] = set()
    tools = []
    for tool in map(build_tool, definitions):
        properties = {
            name: _undescribed(schema) if (name, schema.get("description")) in described else schema
            for name, schema in tool.parameters["properties"].items()
        }
        described |= {
            (name, schema["description"])
            for name, schema in properties.items()
            if "description" in schema
        }
        parameters = {**tool.parameters, "properties": properties}
        tools.append(tool.model_copy(update={"parameters": parameters}))
    return tools


def _undescribed(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "description"}


def _build(definition: Definition) -> Tool:
    function = definition.function
    tool = Tool.from_function(
        function,
        title=definition.title,
        description=inspect.cleandoc(function.__doc__ or ""),
        annotations=definition.hints,
        meta=None if definition.page is None else {"ui": {"resourceUri": definition.page}},
        structured_output=False,  # of answers, which are no models of Pydantic: below
    )
    arguments = tool.fn_metadata.arg_model
    # The SDK drops unknown arguments silently; a misspelt one would then be taken as not given.
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    tool.parameters = _lean(arguments.model_json_schema(by_alias=True))
    kind = answer_type(function)
    tool.fn_metadata.output_model = kind
    tool.fn_metadata.output_schema = _outline(adapter_of(kind).json_schema())
    return tool


def answer_type(function: Callable[..., Any]) -> type[Answer]:
    """The type of a tool's answer; `Annotated` where it returns the SDK's result."""
    returned = get_type_hints(function, include_extras=True)["return"]
    kinds = [returned, *get_args(returned)]
    return next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Answer))


def _lean(schema: dict[str, Any]) -> dict[str, Any]:
    """Generated titles repeat the names, an empty default says as much as none, and limits that
    nobody goes beyond say nothing: every client pays for them in context."""
    properties = {
        name: {
            key: value
            for key, value in described.items()
            if key not in ("title", "minimum", "maximum") and not (key == "default" and not value)
        }
        for name, described in schema["properties"].items()
    }
    return {
        key: properties if key == "properties" else value
        for key, value in schema.items()
        if key != "title"
    }


def _outline(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An answer's fields with their types, without what they consist of: clients check answers by
    it, and some show it to their model. The server holds answers to the whole model."""
    required = schema.get("required", [])
    properties = {
        name: _type_alone(described, name in required)
        for name, described in schema["properties"].items()
    }
    return {"type": "object", "properties": properties, "required": required}


def _type_alone(described: Mapping[str, Any], is_required: bool) -> dict[str, Any]:
    """The type of a field, none where it may have several. Null is a value of required fields only:
    others are left out then."""
    options = described.get("anyOf", [described])
    kinds = [option for option in options if option.get("type") != "null"]
    if len(kinds) != 1:
        return {}
    kind = "object" if "$ref" in kinds[0] else kinds[0].get("type")
    if kind is None:
        return {}
    return {"type": [kind, "null"] if is_required and len(options) > 1 else kind}
