"""An asyncssh connection to an endpoint, hop by hop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import asyncssh
from asyncssh.public_key import (
    decode_ssh_public_key,
    get_default_certificate_algs,
    get_default_public_key_algs,
)

from trainmaster.backends.ssh.endpoint import Endpoint, Hop
from trainmaster.backends.ssh.error_mapping import (
    CONNECT_TIMEOUT_S,
    KEEPALIVE_EVERY_S,
    KEEPALIVE_MISSES,
    authentication_refused,
    no_common_algorithm,
    reason_of,
    unreachable,
)
from trainmaster.backends.ssh.host_keys import Pins, pin_of
from trainmaster.backends.ssh.private_keys import HopKeys
from trainmaster.errors.errors import HostError


class AsyncConnection:
    """A connection, and those of its jump hosts."""

    def __init__(self, connections: Sequence[asyncssh.SSHClientConnection]) -> None:
        self._connections = list(connections)

    @property
    def target(self) -> asyncssh.SSHClientConnection:
        return self._connections[-1]

    async def close(self) -> None:
        """Close all of them, the target's first. Idempotent."""
        for connection in reversed(self._connections):
            connection.close()
            await connection.wait_closed()


async def connect(endpoint: Endpoint, keys: Mapping[Hop, HopKeys], pins: Pins) -> AsyncConnection:
    """Connect through every hop; each host key is pinned or compared before authentication.

    Raises:
        HostError: `HOST_UNREACHABLE`, `HOST_KEY_CHANGED`, `AUTH_FAILED`.
    """
    made: list[asyncssh.SSHClientConnection] = []
    try:
        for hop in endpoint.hops:
            through = made[-1] if made else None
            made.append(await _Attempt(endpoint, hop, keys[hop], pins).connect(through))
    except BaseException:
        await AsyncConnection(made).close()
        raise
    return AsyncConnection(made)


class _Attempt:
    """A connection attempt to one hop."""

    def __init__(self, endpoint: Endpoint, hop: Hop, keys: HopKeys, pins: Pins) -> None:
        self._endpoint, self._hop, self._keys, self._pins = endpoint, hop, keys, pins
        self.refusal: HostError | None = None

    @property
    def _label(self) -> str:
        return self._endpoint.describe(self._hop)

    async def connect(
        self, through: asyncssh.SSHClientConnection | None
    ) -> asyncssh.SSHClientConnection:
        agent = asyncssh.SSHAgentClient(self._keys.agent) if self._keys.agent else None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return await self._open(through, agent)
        except HostError:
            raise
        except (OSError, asyncssh.Error) as error:
            raise self._mapped(error) from error
        finally:
            if agent is not None:
                agent.close()

    def check(self, key: asyncssh.SSHKey) -> bool:
        """Check the host's key against the pins."""
        pin = pin_of(self._hop.pin_name, key.public_data)
        try:
            self._pins.accept(pin, self._label)
        except HostError as refusal:
            self.refusal = refusal
            return False
        return True

    async def _open(
        self,
        through: asyncssh.SSHClientConnection | None,
        agent: asyncssh.SSHAgentClient | None,
    ) -> asyncssh.SSHClientConnection:
        hop = self._hop
        known_keys = self._pins.known(hop.pin_name)
        names = get_default_public_key_algs()
        if known_keys.authorities:
            names = [*get_default_certificate_algs(), *names]
        algorithms = [name.decode() for name in names]
        return await asyncssh.connect(
            hop.host,
            hop.port,
            username=hop.user,
            tunnel=through,
            proxy_command=None if through else hop.proxy_command,
            config=None,
            # For an empty list asyncssh would read ~/.ssh/known_hosts. With this one it trusts no
            # key by itself: each is checked against the pins.
            known_hosts=([], _keys(known_keys.authorities), self._revoked()),
            host_key_alias=hop.known_as,
            client_factory=lambda: _PinningClient(self),
            server_host_key_algs=self._pins.order(hop.pin_name, algorithms),
            client_keys=await self._pairs(agent) or None,
            agent_path=None,
            agent_forwarding=False,
            # The fastest of the common ciphers in Python: a third faster than the default.
            encryption_algs="^aes128-gcm@openssh.com,aes256-gcm@openssh.com",
            preferred_auth="publickey",
            keepalive_interval=KEEPALIVE_EVERY_S,
            keepalive_count_max=KEEPALIVE_MISSES,
        )

    def _revoked(self) -> list[asyncssh.SSHKey]:
        """For certificates; plain keys are compared with them by `check`, which says so."""
        known_keys = self._pins.known(self._hop.pin_name)
        return _keys(known_keys.revoked) if known_keys.authorities else []

    async def _pairs(self, agent: asyncssh.SSHAgentClient | None) -> list[asyncssh.SSHKeyPair]:
        """The keys to try, in order."""
        own: list[asyncssh.SSHKeyPair] = []
        for opened in self._keys.files:
            certificates = [str(opened.certificate)] if opened.certificate else []
            own += asyncssh.load_keypairs(opened.key, certlist=certificates)
        held: list[asyncssh.SSHKeyPair] = []
        if agent is not None and self._keys.agent_keys:
            try:
                held = list(await agent.get_keys(self._keys.agent_keys))
            except (OSError, ValueError):
                held = []
            order = {key: place for place, key in enumerate(self._keys.agent_keys)}
            held.sort(key=lambda pair: order.get(pair.public_data, len(order)))
        return own + held if self._keys.files_first else held + own

    def _mapped(self, error: OSError | asyncssh.Error) -> HostError:
        if self.refusal is not None:
            return self.refusal
        reason = reason_of(error)
        if isinstance(error, asyncssh.HostKeyNotVerifiable):  # a certificate
            return self._pins.unverified(self._hop.pin_name, self._label, reason)
        if isinstance(error, asyncssh.PermissionDenied) or "authentication failures" in reason:
            return authentication_refused(self._endpoint, self._hop, self._keys.named)
        if isinstance(error, asyncssh.KeyExchangeFailed):
            return no_common_algorithm(self._endpoint, self._hop, reason)
        return unreachable(self._endpoint, self._hop, reason)


def _keys(keys: frozenset[bytes]) -> list[asyncssh.SSHKey]:
    return [decode_ssh_public_key(key) for key in keys]


class _PinningClient(asyncssh.SSHClient):
    """Checks the host's key by an attempt's pins."""

    def __init__(self, attempt: _Attempt) -> None:
        self._attempt = attempt

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        return self._attempt.check(key)
