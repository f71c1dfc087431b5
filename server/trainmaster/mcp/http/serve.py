"""`trainmaster mcp --http`: where it listens, and what is refused before it does."""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import PolicyError, UsageError
from trainmaster.home.paths import Home
from trainmaster.mcp.definition import Definition
from trainmaster.mcp.http.application import PATH, Served, application
from trainmaster.mcp.http.names import known_names
from trainmaster.mcp.toolsets import chosen_tools
from trainmaster.serving.listening import listen
from trainmaster.serving.log import log_to_stderr
from trainmaster.serving.server import LimitedServer
from trainmaster.settings.server_settings import LOOPBACK, ServerSettings
from trainmaster.settings.settings import read_settings
from trainmaster.store.access_tokens import read_tokens
from trainmaster.store.private_home import open_home

# Calls under way get so long to end once the server is to end; the process, 4 s in all.
_GRACE_S = 2


@dataclass(frozen=True, slots=True)
class Listening:
    """`port` 0: any. `certificate` and `key`: PEM files, for TLS. `authorized`: whether requests
    need a token."""

    address: str = "127.0.0.1"
    port: int = 8765
    certificate: Path | None = None
    key: Path | None = None
    authorized: bool = True


@dataclass(frozen=True, slots=True)
class Bound:
    """A server with its open socket. `url`: of the endpoint, as this machine has it."""

    server: uvicorn.Server
    listener: socket.socket
    url: str

    async def serve(self) -> None:
        """Serve until a signal ends the process, or `server.should_exit`."""
        await self.server.serve(sockets=[self.listener])


async def serve_http(
    environment: Mapping[str, str],
    listening: Listening,
    announce: Callable[[str], None],
    *,
    read_only: bool = False,
    toolsets: Sequence[str] = (),
    tools: Sequence[str] = (),
) -> None:
    """Serve until a signal ends the process; `announce` gets the endpoint's URL once it listens.

    Raises: as `bound_server`.
    """
    log_to_stderr()
    definitions = chosen_tools(toolsets, tools, read_only=read_only)
    async with bound_server(environment, listening, definitions) as bound:
        # uvicorn repeats a signal once it has ended; by default the process would end at that.
        signal.signal(signal.SIGTERM, lambda *_: None)
        announce(bound.url)
        await bound.serve()


@asynccontextmanager
async def bound_server(
    environment: Mapping[str, str], listening: Listening, definitions: Sequence[Definition]
) -> AsyncIterator[Bound]:
    """A server of these tools, ready to serve.

    Raises:
        UsageError: `BAD_ARGUMENT`, `ADDRESS_UNUSABLE`.
        PolicyError: `SERVER_NOT_PROTECTED`.
        TrainmasterError: the home, the settings or the tokens can't be used.
    """
    home = open_home(environment)
    settings = read_settings(home).server
    refuse_unprotected(listening, settings, home)
    _check_certificate(listening)
    with listen(listening.address, listening.port) as listener:
        port = listener.getsockname()[1]
        own_url = _own_url(listening, port)
        served = Served(
            settings.url or own_url,
            known_names(listening.address, port, settings.url, settings.origins),
            settings,
            authorized=listening.authorized,
        )
        async with application(environment, home, definitions, served) as app:
            server = LimitedServer(
                app,
                grace_s=_GRACE_S,
                proxies=settings.proxies,
                ssl_certfile=listening.certificate,
                ssl_keyfile=listening.key,
            )
            yield Bound(server, listener, own_url)


def _own_url(listening: Listening, port: int) -> str:
    scheme = "http" if listening.certificate is None else "https"
    address = f"[{listening.address}]" if ":" in listening.address else listening.address
    return f"{scheme}://{address}:{port}{PATH}"


def refuse_unprotected(listening: Listening, settings: ServerSettings, home: Home) -> None:
    """Refuse a server that others could use, or whose tokens others could read.

    Raises:
        PolicyError: `SERVER_NOT_PROTECTED`.
        StorageError: `TOKENS_NOT_READABLE`.
    """
    is_local = listening.address in LOOPBACK
    if not listening.authorized and not is_local:
        raise _unprotected(
            f"Without authorization nothing is served on {listening.address}.",
            "Leave out --no-auth, or --address.",
        )
    if listening.authorized and settings.oauth is None and not read_tokens(home):
        raise _unprotected(
            "No access token was made yet, and the settings name no authorization server.",
            f"Run {command('mcp-tokens add', 'NAME', '--role', 'operate')}; --no-auth lets every "
            "account of this machine in.",
        )
    if not is_local and listening.certificate is None and not settings.proxies:
        raise _unprotected(
            f"Tokens would reach {listening.address} unencrypted.",
            "Give --certificate and --key, or name the reverse proxy that does TLS as "
            "`server.proxies` in the settings.",
        )
    if not is_local and settings.url is None:
        raise _unprotected(
            "The name under which clients reach the server is not known.",
            "Set `server.url` in the settings, as https://train.example.org/mcp.",
        )


def _unprotected(message: str, fix: str) -> PolicyError:
    return PolicyError("SERVER_NOT_PROTECTED", message, fix)


def _check_certificate(listening: Listening) -> None:
    if (listening.certificate is None) != (listening.key is None):
        raise UsageError(
            "BAD_ARGUMENT", "TLS needs a certificate and its key.", "Give --certificate and --key."
        )
    if listening.certificate is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            listening.certificate, listening.key
        )
    except (OSError, ValueError) as error:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{listening.certificate} and {listening.key} can't be used for TLS: "
            f"{type(error).__name__}.",
            "Give a certificate with its chain and its key without a passphrase, both in PEM.",
            field="certificate",
        ) from error
