"""The key that lets this home into the boxes that it rents: made once, known to nobody else."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.durable import write_synced
from trainmaster.words.errors import StateError
from trainmaster.words.paths import Home


@dataclass(frozen=True, slots=True)
class RentedKey:
    """`private`: a path of this machine; `public`: the line that a provider is given."""

    private: Path
    public: str


def rented_key(home: Home) -> RentedKey:
    """The home's key, made where it is missing. Of several that make it at once, one's stays.

    Raises:
        StateError: `SECRET_INVALID`, what lies there is no key.
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
            f"{path}, the key to rented boxes, can't be read as a private key.",
            "Put back the file that was there; where it is lost, remove it: another is made, which "
            "opens the boxes that are rented from then on.",
        ) from None
    return RentedKey(path, key.export_public_key().decode().strip())


def _make(path: Path) -> None:
    import asyncssh

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    key = asyncssh.generate_private_key("ssh-ed25519", comment="trainmaster")
    try:
        write_synced(own, key.export_private_key(), 0o600)
        os.link(own, path)  # fails where another has come first
    except FileExistsError:
        return
    finally:
        own.unlink(missing_ok=True)
