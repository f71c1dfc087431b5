"""The MCP server: which tools it offers, and how it is served."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager

from mcp.server import MCPServer

from trainer_runtime import __version__
from trainmaster.calls.shares import Shares
from trainmaster.errors.advice import Face
from trainmaster.home.own_program import command_line
from trainmaster.mcp.apps import board_app
from trainmaster.mcp.definition import Definition, Opener, OpenWorkspace, build_tools
from trainmaster.mcp.error_mapping import AnsweringServer
from trainmaster.mcp.instructions import instructions_for
from trainmaster.mcp.toolsets import chosen_tools

Lifespan = Callable[[MCPServer[OpenWorkspace]], AbstractAsyncContextManager[OpenWorkspace]]


def build_server(
    environment: Mapping[str, str],
    *,
    read_only: bool = False,
    toolsets: Sequence[str] = (),
    tools: Sequence[str] = (),
    opened: Opener | None = None,
) -> MCPServer[OpenWorkspace]:
    """The server with the tools that `chosen_tools` gives; `read_only` beats everything.

    Where none of them acts the server is read-only too. `opened` gives the workspace that the tools
    work in, None the one of the environment's home.

    Raises:
        UsageError: `BAD_ARGUMENT`, a toolset or a tool does not exist, or none is left.
    """
    definitions = chosen_tools(toolsets, tools, read_only=read_only)
    read_only = read_only or all(definition.only_reads for definition in definitions)
    return server_of(definitions, environment, _lifespan(environment, read_only, opened))


def server_of(
    definitions: Sequence[Definition],
    environment: Mapping[str, str],
    lifespan: Lifespan,
    *,
    is_remote: bool = False,
    shares: Shares | None = None,
) -> AnsweringServer:
    """A server with these tools, each call of which gets the workspace that `lifespan` opens.

    It is read-only where each of its tools only reads. `is_remote`: its users have no shell here.
    `shares`: those of the process, where it has several servers.
    """
    names = [definition.name for definition in definitions]
    read_only = all(definition.only_reads for definition in definitions)
    server = AnsweringServer(
        "trainmaster",
        title="Trainmaster",
        version=__version__,
        instructions=instructions_for(names, read_only=read_only, is_remote=is_remote),
        tools=build_tools(definitions),
        extensions=[board_app()] if any(definition.page for definition in definitions) else [],
        lifespan=lifespan,
        log_level="WARNING",
    )
    server.face = Face(command_line(environment), frozenset(names), is_remote)
    server.acting = frozenset(
        definition.name for definition in definitions if not definition.only_reads
    )
    server.only_reads = read_only
    server.shares = shares or Shares()
    return server


async def serve_stdio(
    environment: Mapping[str, str],
    *,
    read_only: bool = False,
    toolsets: Sequence[str] = (),
    tools: Sequence[str] = (),
) -> None:
    """Serve on stdin and stdout until the client closes them; everything else goes to stderr.

    Raises:
        UsageError: `BAD_ARGUMENT`, as `build_server`.
    """
    server = build_server(environment, read_only=read_only, toolsets=toolsets, tools=tools)
    await server.run_stdio_async()


def _lifespan(environment: Mapping[str, str], read_only: bool, opener: Opener | None) -> Lifespan:
    @asynccontextmanager
    async def lifespan(_: MCPServer[OpenWorkspace]) -> AsyncIterator[OpenWorkspace]:
        with ExitStack() as closing:
            opened = OpenWorkspace(environment, closing, read_only=read_only, opened=opener)
            try:
                yield opened
            finally:
                await opened.disconnect()

    return lifespan
