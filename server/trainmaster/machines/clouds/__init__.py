"""Who rents out machines: the one port that services see, and which provider a name means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainmaster.machines.clouds import lambda_, runpod, vast
from trainmaster.machines.clouds.cloud import Box, BoxRequest, Cloud, Offer, Wanted
from trainmaster.machines.clouds.http import DEFAULT_PACE, Account, Api, Pace
from trainmaster.store.secret_values import find_value
from trainmaster.words.errors import CloudError, StateError, UsageError
from trainmaster.words.paths import Home
from trainmaster.words.settings import Settings


@dataclass(frozen=True, slots=True)
class _Provider:
    """`key_name`: where the key to its API is looked for: the environment, then the home's
    secrets.env."""

    client: Callable[[Api], Cloud]
    key_name: str
    key_page: str
    base_url: str
    path_end: str = ""
    pace: Pace = DEFAULT_PACE


_PROVIDERS = {
    "runpod": _Provider(runpod.RunPod, "RUNPOD_API_KEY", runpod.KEY_PAGE, runpod.BASE_URL),
    "vast": _Provider(vast.Vast, "VAST_API_KEY", vast.KEY_PAGE, vast.BASE_URL, vast.PATH_END),
    "lambda": _Provider(
        lambda_.Lambda, "LAMBDA_API_KEY", lambda_.KEY_PAGE, lambda_.BASE_URL, pace=lambda_.PACE
    ),
}
NAMES = tuple(_PROVIDERS)
KEY_NAMES = {name: provider.key_name for name, provider in _PROVIDERS.items()}


def open_cloud(
    name: str,
    home: Home,
    settings: Settings,
    environment: Mapping[str, str],
    pace: Pace | None = None,
) -> Cloud:
    """The client of a provider, of one event loop; connects to nothing yet. `pace`: another than
    the provider's.

    Raises:
        UsageError: `CLOUD_UNKNOWN`.
        CloudError: `CLOUD_KEY_MISSING`, naming the variable and where a key is to be had;
            `CLOUD_KEY_REFUSED`, what stands there is none.
        StateError: `SECRET_INVALID`, `SETTINGS_NOT_READABLE`: where it would be sent to.
    """
    provider = _PROVIDERS.get(name)
    if provider is None:
        there_are = f"There are {', '.join(NAMES)}."
        raise UsageError("CLOUD_UNKNOWN", f"No provider is called {name!r}.", there_are)
    configured = {str(known): url for known, url in settings.cloud_urls.items()}
    account = Account(
        provider=name,
        base_url=configured.get(name, provider.base_url),
        key=_key(name, provider, home, environment),
        variable=provider.key_name,
        key_page=provider.key_page,
        path_end=provider.path_end,
    )
    return provider.client(Api(account, pace or provider.pace))


def _key(name: str, provider: _Provider, home: Home, environment: Mapping[str, str]) -> str:
    variable = provider.key_name
    try:
        return find_value(home, variable, environment, variable).strip()
    except StateError as error:
        if error.code != "SECRET_MISSING":
            raise
        raise CloudError(
            "CLOUD_KEY_MISSING",
            f"There is no key for {name}: {variable} is neither in the environment nor in "
            f"{home.secrets_env}.",
            f"Make one at {provider.key_page}, and put it as a line {variable}=… into "
            f"{home.secrets_env} (mode 0600).",
        ) from None


__all__ = [
    "KEY_NAMES",
    "KEY_PAGES",
    "NAMES",
    "Box",
    "BoxRequest",
    "Cloud",
    "Offer",
    "Wanted",
    "open_cloud",
]
