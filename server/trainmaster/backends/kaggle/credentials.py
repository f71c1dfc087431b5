"""Find credentials for Kaggle, in the order of its official client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainmaster.errors.errors import CloudError, StateError
from trainmaster.home.paths import Home
from trainmaster.store.secret_values import find_value

TOKEN, USER, KEY = "KAGGLE_API_TOKEN", "KAGGLE_USERNAME", "KAGGLE_KEY"
VARIABLES = (TOKEN, USER, KEY)
HOW_TO_GET = (
    "Make a token at https://www.kaggle.com/settings/api and put it into the environment or the "
    f"home's secrets.env (mode 0600) as {TOKEN}."
)


def with_keys(home: Home, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, with keys that only the home's `secrets.env` contains.

    Raises:
        CloudError: `SECRET_INVALID`, that file is invalid.
    """
    variables = dict(environment)
    for name in VARIABLES:
        if variables.get(name):
            continue
        try:
            variables[name] = find_value(home, name, {}, name)
        except StateError as error:
            if error.code != "SECRET_MISSING":
                raise CloudError(error.code, error.message, error.fix) from None
            variables.pop(name, None)
    return variables


def key_places(environment: Mapping[str, str]) -> list[str]:
    """The names of the places with credentials, by precedence; never a value."""
    folder = Path(environment.get("HOME") or Path.home()) / ".kaggle"
    files = {name: folder / name for name in ("access_token", "access_token.txt")}
    places = [TOKEN] if environment.get(TOKEN) else []
    places += [str(path) for path in files.values() if path.is_file()]
    if environment.get(USER) and environment.get(KEY):
        places.append(f"{USER} and {KEY}")
    legacy = config_folder(environment) / "kaggle.json"
    if legacy.is_file():
        places.append(str(legacy))
    oauth = folder / "credentials.json"
    return [*places, str(oauth)] if oauth.is_file() else places


def config_folder(environment: Mapping[str, str]) -> Path:
    """The folder of `kaggle.json`."""
    if environment.get("KAGGLE_CONFIG_DIR"):
        return Path(environment["KAGGLE_CONFIG_DIR"])
    home = Path(environment.get("HOME") or Path.home())
    if (home / ".kaggle").exists():
        return home / ".kaggle"
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "kaggle"


def missing(environment: Mapping[str, str]) -> str:
    """The message that lists the places without credentials."""
    half = [name for name in (USER, KEY) if environment.get(name)]
    if len(half) == 1:
        other = KEY if half[0] == USER else USER
        return f"{half[0]} is set, but {other} is not, and there is no {TOKEN}."
    return (
        f"There are no credentials for Kaggle: neither {TOKEN} nor {USER} and {KEY} is set, and "
        f"there is neither ~/.kaggle/access_token nor {config_folder(environment)}/kaggle.json."
    )
