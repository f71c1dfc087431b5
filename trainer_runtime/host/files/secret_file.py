"""A run's secrets: a file that its owner alone can read, while they are needed."""

from __future__ import annotations

from trainer_runtime.core.config import RunConfig
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder


class SecretsMissingError(Exception):
    """A secret that the configuration names was not given, or is not there any more."""


def secret_values(run: RunFolder) -> dict[str, str]:
    """Every secret value in the run's folder, by name."""
    values = (read_json(run.secrets) or {}).get("values")
    return {str(name): str(value) for name, value in values.items()} if values else {}


def secret_environment(run: RunFolder, config: RunConfig) -> dict[str, str]:
    """The variables that a configuration asks for.

    Raises:
        SecretsMissingError: one is not there; training without it would fail later, or elsewhere.
    """
    values = secret_values(run)
    missing = [name for name in config.secrets if name not in values]
    if missing:
        raise SecretsMissingError(
            f"The secrets {', '.join(missing)} are not there any more; a resume delivers them."
        )
    return {name: values[name] for name in config.secrets}


def remove_secrets(run: RunFolder, answered: int) -> None:
    """Remove them once nothing starts by itself any more; may be repeated.

    Those that came for a request newer than the `answered` generation are for an attempt to come.
    """
    secrets = read_json(run.secrets)
    if secrets is None or int(secrets.get("generation") or 0) <= answered:
        run.secrets.unlink(missing_ok=True)
