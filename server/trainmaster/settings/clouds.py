"""The providers of rented machines: their names, and the variables that hold their keys.

`machines/clouds` has a module for each name. Everything that lists providers or their keys follows
from here.
"""

from __future__ import annotations

from typing import Literal, get_args

CloudName = Literal["runpod", "vast", "lambda"]
CLOUD_NAMES: tuple[CloudName, ...] = get_args(CloudName)


def key_variable(cloud: str) -> str:
    """The variable with the provider's API key: in the environment, else in `secrets.env`."""
    return f"{cloud.upper()}_API_KEY"


KEY_NAMES: dict[str, str] = {name: key_variable(name) for name in CLOUD_NAMES}
