"""A paramiko connection to an endpoint, hop by hop. All of it blocks: run it in a thread."""

from __future__ import annotations

import io
import logging
import socket
from collections.abc import Mapping, Sequence

import paramiko

from trainmaster.backends.ssh.endpoint import Endpoint, Hop
from trainmaster.backends.ssh.error_mapping import (
    CONNECT_TIMEOUT_S,
    authentication_refused,
    no_common_algorithm,
    reason_of,
    unreachable,
)
from trainmaster.backends.ssh.host_keys import Pins, pin_of
from trainmaster.backends.ssh.private_keys import HopKeys, OpenKey
from trainmaster.errors.errors import HostError

_KINDS: dict[bytes, type[paramiko.PKey]] = {
    b"ssh-ed25519": paramiko.Ed25519Key,
    b"ssh-rsa": paramiko.RSAKey,
}
BROKEN = (OSError, EOFError, paramiko.SSHException)
# Errors carry what it would log; without a handler its warnings would reach the terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def connect_all(
    endpoint: Endpoint, keys: Mapping[Hop, HopKeys], pins: Pins
) -> list[paramiko.Transport]:
    """Connect through every hop, the target's connection being the last.

    Each host key is pinned or compared before authentication.

    Raises:
        HostError: `HOST_UNREACHABLE`, `HOST_KEY_CHANGED`, `AUTH_FAILED`.
    """
    made: list[paramiko.Transport] = []
    try:
        for hop in endpoint.hops:
            made.append(_connect(endpoint, hop, pins, made[-1] if made else None))
            _log_in(made[-1], endpoint, hop, keys[hop])
    except BaseException:
        close_all(made)
        raise
    return made


def close_all(connections: Sequence[paramiko.Transport]) -> None:
    """Close connections, the target's first. Idempotent."""
    for connection in reversed(connections):
        connection.close()


def _connect(
    endpoint: Endpoint, hop: Hop, pins: Pins, through: paramiko.Transport | None
) -> paramiko.Transport:
    connection: paramiko.Transport | None = None
    try:
        connection = paramiko.Transport(_way_to(hop, through))
        # By default, paramiko waits up to half a minute while connecting.
        connection.banner_timeout = connection.auth_timeout = CONNECT_TIMEOUT_S
        security = connection.get_security_options()
        security.key_types = pins.order(hop.pin_name, security.key_types)
        connection.start_client(timeout=CONNECT_TIMEOUT_S)
        key = connection.get_remote_server_key().asbytes()
        pins.accept(pin_of(hop.pin_name, key), endpoint.describe(hop))
        return connection
    except (HostError, *BROKEN) as error:
        if connection is not None:
            connection.close()
        if isinstance(error, HostError):
            raise
        if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
            raise no_common_algorithm(endpoint, hop, str(error)) from error
        raise unreachable(endpoint, hop, reason_of(error)) from error


def _way_to(
    hop: Hop, through: paramiko.Transport | None
) -> socket.socket | paramiko.Channel | paramiko.ProxyCommand:
    here = ("127.0.0.1", 0)
    if through is not None:
        there = (hop.host, hop.port)
        return through.open_channel("direct-tcpip", there, here, timeout=CONNECT_TIMEOUT_S)
    if hop.proxy_command is not None:
        return paramiko.ProxyCommand(hop.proxy_command)
    opened = socket.create_connection((hop.host, hop.port), CONNECT_TIMEOUT_S)
    # Without this, every command waits 40 ms for a delayed acknowledgement.
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def _log_in(connection: paramiko.Transport, endpoint: Endpoint, hop: Hop, keys: HopKeys) -> None:
    try:
        if _logged_in(connection, hop, keys):
            return
    except BROKEN as error:
        # Servers disconnect after too many keys.
        if not isinstance(error, paramiko.SSHException) or connection.is_active():
            raise unreachable(endpoint, hop, reason_of(error)) from error
    raise authentication_refused(endpoint, hop, keys.named)


def _logged_in(connection: paramiko.Transport, hop: Hop, keys: HopKeys) -> bool:
    try:
        connection.auth_none(hop.user)
    except paramiko.BadAuthenticationType as asked:
        if "publickey" not in asked.allowed_types:
            return False
    own: list[paramiko.PKey] = [paramiko_key(opened) for opened in keys.files]
    held: list[paramiko.PKey] = list(_agent_keys(keys))
    for key in own + held if keys.files_first else held + own:
        if connection.is_authenticated():
            break
        try:
            connection.auth_publickey(hop.user, key)
        except paramiko.AuthenticationException:
            continue
    return connection.is_authenticated()


def paramiko_key(opened: OpenKey) -> paramiko.PKey:
    """An opened key as a paramiko key."""
    kind = _KINDS.get(opened.key.algorithm, paramiko.ECDSAKey)
    # paramiko drops a key without comment and padding.
    opened.key.set_comment("trainmaster")
    key = kind.from_private_key(io.StringIO(opened.key.export_private_key("openssh").decode()))
    if opened.certificate is not None:
        key.load_certificate(str(opened.certificate))
    return key


def _agent_keys(keys: HopKeys) -> list[paramiko.AgentKey]:
    if not keys.agent or not keys.agent_keys:
        return []
    try:
        held = {key.asbytes(): key for key in _Agent(keys.agent).get_keys()}
    except BROKEN:
        return []
    return [held[key] for key in keys.agent_keys if key in held]


class _Agent(paramiko.agent.AgentSSH):
    """The agent at a socket; `paramiko.Agent` supports SSH_AUTH_SOCK alone."""

    def __init__(self, path: str) -> None:
        super().__init__()
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(CONNECT_TIMEOUT_S)
        connection.connect(path)
        self._connect(connection)  # type: ignore[attr-defined]  # as paramiko.Agent does
