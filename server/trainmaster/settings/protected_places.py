"""Places that hold keys, credentials or the state of the system: no tool reads or sends them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath

from trainer_runtime.core.files.protected import names_credentials

_SYSTEM = (
    *("/proc", "/sys", "/dev", "/etc", "/private/etc"),
    *(f"{run}/{name}" for run in ("/run", "/var/run") for name in ("secrets", "user")),
)
# Variables by which programs are led to credentials elsewhere.
_VARIABLES = (
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AZURE_CONFIG_DIR",
    "CLOUDSDK_CONFIG",
    "DOCKER_CONFIG",
    "GNUPGHOME",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "HF_TOKEN_PATH",
    "KAGGLE_CONFIG_DIR",
    "KUBECONFIG",
    "NETRC",
)


def is_of_system(path: PurePath) -> bool:
    """Whether an absolute path is of the system's own state."""
    # A path may keep two leading slashes, which mean one.
    plain = PurePosixPath("/", *path.parts[1:]) if path.is_absolute() else path
    return any(plain.is_relative_to(place) for place in _SYSTEM)


def protected_on_host(path: str) -> bool:
    """Whether a path of another machine, of which only the name is known, is one of credentials or
    of the system. A relative one may climb anywhere: nobody here knows where it starts."""
    named = PurePosixPath(os.path.normpath(path))
    return names_credentials(named) or is_of_system(named) or named.parts[:1] == ("..",)


def protected_folders(user_home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The real paths of what is protected by its place: of the system, of other users, and where
    this environment's variables put credentials."""
    places = [
        Path(os.path.expanduser(value)) for name in _VARIABLES if (value := environment.get(name))
    ]
    if environment.get("HF_HOME"):
        places.append(Path(os.path.expanduser(environment["HF_HOME"])) / "token")
    if not user_home.is_relative_to("/root"):
        places.append(Path("/root"))
    return tuple(Path(os.path.realpath(place)) for place in places if place.is_absolute())


def lies_in(path: Path, folders: Sequence[Path]) -> bool:
    """Whether a path is one of the folders, or below one."""
    return any(path.is_relative_to(folder) for folder in folders)
