"""The private key with which this home logs in to the instances it rents, created once."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.durable import write_synced
from trainmaster.errors.errors import StateError
from trainmaster.home.paths import Home


@dataclass(frozen=True, slots=True)
class RentedKey:
    """`private`: a path on this machine; `public`: the line for the provider."""

    private: Path
    public: str


def rented_key(home: Home) -> RentedKey:
    """The home's key, created if missing. If several processes create it at once, one key remains.

    Raises:
        StateError: `SECRET_INVALID`, the file does not hold a private key.
    """
    import asyncssh

    path = home.rented_key
    if not path.exists():
        _make(path)
    try:
        key = asyncssh.read_private_key(path)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, OSError):
        raise StateError(
            "SECRET_INVALID",
            f"{path}, the key for rented instances, can't be read as a private key.",
            "Restore the file; if it is lost, remove it: a new key is created for later instances.",
        ) from None
    return RentedKey(path, key.export_public_key().decode().strip())


def _make(path: Path) -> None:
    import asyncssh

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    key = asyncssh.generate_private_key("ssh-ed25519", comment="trainmaster")
    try:
        write_synced(temporary, key.export_private_key(), 0o600)
        os.link(temporary, path)  # fails if another process was first
    except FileExistsError:
        return
    finally:
        temporary.unlink(missing_ok=True)
