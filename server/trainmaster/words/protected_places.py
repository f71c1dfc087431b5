"""Places that hold keys, credentials or the state of the system: no tool reads or sends them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath

# Names of files, and consecutive parts of a path wherever they stand in it. Lower case: some disks
# ignore it.
_FILES = frozenset(
    {
        *(
            ".netrc",
            "_netrc",
            ".pgpass",
            ".git-credentials",
            ".pypirc",
            ".npmrc",
            ".boto",
            ".s3cfg",
        ),
        *(".env", ".vault-token", ".secrets.json", ".alerts.json", "secrets.env"),
        *("control.db", "control.db-wal", "control.db-shm"),
    }
)
_FOLDERS = (
    *((name,) for name in (".ssh", ".aws", ".azure", ".kube", ".gnupg", ".kaggle", ".oci")),
    *((name,) for name in (".huggingface", ".password-store")),
    *((".config", name) for name in ("gcloud", "gh", "huggingface", "kaggle", "op", "rclone")),
    (".docker", "config.json"),
    (".cache", "huggingface", "token"),
    (".cache", "huggingface", "stored_tokens"),
    (".local", "share", "keyrings"),
    ("library", "keychains"),
    # Homes of Trainmaster in their usual places.
    *(
        (home, name)
        for home in ("trainmaster", ".trainmaster")
        for name in ("keys", "secrets", "kaggle-secrets", "settings.yaml")
    ),
)
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


def names_credentials(path: PurePath) -> bool:
    """Whether a path, on whatever machine, is by its name one of keys or credentials."""
    parts = tuple(part.casefold() for part in path.parts)
    return (parts[-1:] or ("",))[0] in _FILES or any(
        parts[start : start + len(names)] == names
        for names in _FOLDERS
        for start in range(len(parts) - len(names) + 1)
    )


def is_of_system(path: PurePath) -> bool:
    """Whether an absolute path is of the system's own state."""
    # A path may keep two leading slashes, which mean one.
    plain = PurePosixPath("/", *path.parts[1:]) if path.is_absolute() else path
    return any(plain.is_relative_to(place) for place in _SYSTEM)


def protected_on_host(path: str) -> bool:
    """The same for a path of another machine, of which only the name is known."""
    named = PurePosixPath(os.path.normpath(path))
    return names_credentials(named) or is_of_system(named)


def protected_folders(user_home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The real paths of what is protected by its place: of the system, of other users, and where
    this environment's variables put credentials."""
    places = [Path(value).expanduser() for name in _VARIABLES if (value := environment.get(name))]
    if environment.get("HF_HOME"):
        places.append(Path(environment["HF_HOME"]).expanduser() / "token")
    if not user_home.is_relative_to("/root"):
        places.append(Path("/root"))
    return tuple(Path(os.path.realpath(place)) for place in places if place.is_absolute())


def home_around(path: Path) -> Path | None:
    """The home of Trainmaster, this one or another, that a path lies in."""
    for folder in (path, *path.parents):
        if any(os.path.exists(folder / name) for name in ("control.db", "secrets.env")):
            return folder
    return None


def lies_in(path: Path, folders: Sequence[Path]) -> bool:
    """Whether a path is one of the folders, or below one."""
    return any(path.is_relative_to(folder) for folder in folders)
