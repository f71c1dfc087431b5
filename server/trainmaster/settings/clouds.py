"""The providers of rented machines: their names, and the variables that hold their keys."""

from __future__ import annotations

from typing import Literal, get_args

CloudName = Literal["runpod", "vast", "lambda"]
CLOUD_NAMES: tuple[CloudName, ...] = get_args(CloudName)


def key_variable(cloud: str) -> str:
    """The variable with the provider's API key: in the environment, else in `secrets.env`."""
    return f"{cloud.upper()}_API_KEY"
