"""Providers of rented instances behind one port, and the registry of their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainer_runtime.core.records import dataclass
from trainmaster.errors.errors import CloudError, StateError, UsageError
from trainmaster.home.paths import Home
from trainmaster.machines.clouds import lambda_, runpod, vast
from trainmaster.machines.clouds.cloud import Cloud, Instance, InstanceRequest, Offer, Wanted
from trainmaster.machines.clouds.http import DEFAULT_PACE, Account, Api, Pace
from trainmaster.settings.clouds import key_variable
from trainmaster.settings.settings import Settings
from trainmaster.store.secret_values import find_value


@dataclass(frozen=True, slots=True)
class _Provider:
    """What a provider's client is made of."""

    client: Callable[[Api], Cloud]
    key_page: str
    base_url: str
    path_end: str = ""
    pace: Pace = DEFAULT_PACE


_PROVIDERS: Mapping[str, _Provider] = {
    "runpod": _Provider(runpod.RunPod, runpod.KEY_PAGE, runpod.BASE_URL),
    "vast": _Provider(vast.Vast, vast.KEY_PAGE, vast.BASE_URL, vast.PATH_END),
    "lambda": _Provider(lambda_.Lambda, lambda_.KEY_PAGE, lambda_.BASE_URL, pace=lambda_.PACE),
}
NAMES = tuple(_PROVIDERS)
KEY_NAMES = {name: key_variable(name) for name in _PROVIDERS}


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
    provider = _PROVIDERS.get(name)
    if provider is None:
        message = f"{name!r} is not a known provider."
        raise UsageError("CLOUD_UNKNOWN", message, f"Use one of {', '.join(NAMES)}.")
    configured = {str(cloud_name): url for cloud_name, url in settings.cloud_urls.items()}
    account = Account(
        provider=name,
        base_url=configured.get(name, provider.base_url),
        key=_key(name, provider, home, environment),
        variable=key_variable(name),
        key_page=provider.key_page,
        path_end=provider.path_end,
    )
    return provider.client(Api(account, pace or provider.pace))


def _key(name: str, provider: _Provider, home: Home, environment: Mapping[str, str]) -> str:
    variable = key_variable(name)
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


__all__ = [
    "KEY_NAMES",
    "NAMES",
    "Cloud",
    "Instance",
    "InstanceRequest",
    "Offer",
    "Wanted",
    "open_cloud",
]
