"""Settings for one machine from the user's OpenSSH configuration."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from trainmaster.errors.errors import HostError

AGENT_VARIABLE = "SSH_AUTH_SOCK"


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The settings that every transport uses; None if not configured.

    `identity_agent` is a socket's path or a `$VARIABLE` with it; None for no agent.
    """

    host: str | None = None
    user: str | None = None
    port: int | None = None
    identities: tuple[str, ...] | None = None
    identities_only: bool = False
    identity_agent: str | None = AGENT_VARIABLE
    proxy_jump: str | None = None
    proxy_command: str | None = None
    host_key_alias: str | None = None
    known_hosts: tuple[str, ...] | None = None


def read_user_config(path: Path, named: str, user: str | None, port: int | None) -> HostSettings:
    """The settings for the machine `named`, with Host, Match and Include as in OpenSSH.

    Raises:
        HostError: `HOST_UNREACHABLE`, the file can't be parsed.
    """
    # asyncssh's parser, for all transports, so that they agree.
    from asyncssh.config import SSHClientConfig

    chosen = (getpass.getuser(), user or (), named, port or ())
    try:
        config = SSHClientConfig.load(None, path, False, False, False, *chosen)
        if config.has_match_final():
            config = SSHClientConfig.load(config, path, True, False, True, *chosen)
    except (ValueError, OSError) as error:
        raise HostError(
            "HOST_UNREACHABLE",
            f"The OpenSSH configuration {path} can't be used: {error}.",
            "Fix the file; `ssh -G HOST` shows how OpenSSH reads it.",
        ) from error
    identities = cast("list[str] | None", config.get("IdentityFile"))
    files = cast("list[str] | None", config.get("UserKnownHostsFile"))
    return HostSettings(
        host=cast("str | None", config.get("Hostname")),
        user=cast("str | None", config.get("User")),
        port=cast("int | None", config.get("Port")),
        identities=None if identities is None else tuple(identities),
        identities_only=bool(config.get("IdentitiesOnly", False)),
        identity_agent=cast("str | None", config.get("IdentityAgent", AGENT_VARIABLE)),
        proxy_jump=cast("str | None", config.get("ProxyJump")),
        proxy_command=cast("str | None", config.get("ProxyCommand")),
        host_key_alias=cast("str | None", config.get("HostKeyAlias")),
        known_hosts=None if files is None else tuple(files),
    )
