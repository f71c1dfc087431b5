"""What the user's own known_hosts files say of a hop, as OpenSSH reads them.

Hashed names, patterns, ports, `@revoked` and `@cert-authority` count as with ssh; asyncssh parses
the lines. A line that can't be parsed says nothing, as with ssh.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainmaster.backends.ssh.endpoint import Hop

_LARGEST_FILE_BYTES = 16 << 20
_NO_NAME = "name-of-no-host.invalid"


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """Keys in wire format. `keys`: the hop's own; `authorities`: those whose certificates vouch for
    it, without those that vouch for every name; `revoked`: refused in any case.

    `name`: what the files call the hop; `files`: those that were read.
    """

    name: str = ""
    keys: frozenset[bytes] = frozenset()
    authorities: frozenset[bytes] = frozenset()
    revoked: frozenset[bytes] = frozenset()
    files: tuple[Path, ...] = ()

    @property
    def places(self) -> str:
        return " and ".join(map(str, self.files))

    @property
    def decides(self) -> bool:
        """Whether a key that they don't name is refused."""
        return bool(self.keys or self.authorities)


def read_known_keys(hop: Hop) -> KnownKeys:
    """What the files of a hop say of it; nothing where it has none."""
    from asyncssh.known_hosts import SSHKnownHosts

    known_hosts = SSHKnownHosts()
    read = [path for path in hop.known_hosts if _load(known_hosts, path)]
    name = hop.known_as or hop.pin_name
    if not read:
        return KnownKeys(name)
    # Without a port: a name without one says nothing of the others, as with ssh.
    keys, authorities, revoked, *_ = known_hosts.match(name, "", None)
    for_all = known_hosts.match(_NO_NAME, "", None)[1]
    return KnownKeys(
        name,
        frozenset(key.public_data for key in keys),
        frozenset(key.public_data for key in authorities if key not in for_all),
        frozenset(key.public_data for key in revoked),
        tuple(read),
    )


def _load(known_hosts: object, path: Path) -> bool:
    from asyncssh.known_hosts import SSHKnownHosts

    assert isinstance(known_hosts, SSHKnownHosts)
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE_BYTES).decode(errors="replace")
    except OSError:
        return False
    for line in text.splitlines():
        try:
            known_hosts.load(line)
        except ValueError:
            continue
    return True
