"""Providers of rented instances behind one port: `cloud.Cloud`, and a module for each name of
`settings.clouds`, with its `PROVIDER`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from keyword import iskeyword

from trainmaster.errors.errors import CloudError, StateError, UsageError
from trainmaster.home.paths import Home
from trainmaster.machines.clouds.cloud import Cloud, Instance, InstanceRequest, Offer, Wanted
from trainmaster.machines.clouds.http import Account, Api, Pace, Provider
from trainmaster.settings.clouds import CLOUD_NAMES, KEY_NAMES
from trainmaster.settings.settings import Settings
from trainmaster.store.secret_values import find_value


def open_cloud(
    name: str,
    home: Home,
    settings: Settings,
    environment: Mapping[str, str],
    pace: Pace | None = None,
) -> Cloud:
    """The client of a provider, bound to one event loop; it does not connect yet. `pace` replaces
    the provider's.

    Raises:
        UsageError: `CLOUD_UNKNOWN`.
        CloudError: `CLOUD_KEY_MISSING`, naming the variable and where to create a key;
            `CLOUD_KEY_REFUSED`, the value can't be a key.
        StateError: `SECRET_INVALID`; `SETTINGS_NOT_READABLE`, the key would be sent unencrypted.
    """
    if name not in CLOUD_NAMES:
        message = f"{name!r} is not a known provider."
        raise UsageError("CLOUD_UNKNOWN", message, f"Use one of {', '.join(CLOUD_NAMES)}.")
    provider = _provider(name)
    configured = {str(cloud_name): url for cloud_name, url in settings.cloud_urls.items()}
    account = Account(
        provider=name,
        base_url=configured.get(name, provider.base_url),
        key=_key(name, provider, home, environment),
        variable=KEY_NAMES[name],
        key_page=provider.key_page,
        path_end=provider.path_end,
    )
    return provider.client(Api(account, pace or provider.pace))


def _provider(name: str) -> Provider:
    module = import_module(f"{__name__}.{name}_" if iskeyword(name) else f"{__name__}.{name}")
    provider: Provider = module.PROVIDER
    return provider


def _key(name: str, provider: Provider, home: Home, environment: Mapping[str, str]) -> str:
    variable = KEY_NAMES[name]
    try:
        return find_value(home, variable, environment, variable).strip()
    except StateError as error:
        if error.code != "SECRET_MISSING":
            raise
        raise CloudError(
            "CLOUD_KEY_MISSING",
            f"No key for {name}: {variable} is neither in the environment nor in "
            f"{home.secrets_env}.",
            f"Create one at {provider.key_page}, and add the line {variable}=… to "
            f"{home.secrets_env} (mode 0600).",
        ) from None


__all__ = ["Cloud", "Instance", "InstanceRequest", "Offer", "Wanted", "open_cloud"]
