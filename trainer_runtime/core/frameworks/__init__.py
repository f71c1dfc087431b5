"""Translates a resolved config.json into a framework's own files and command line.

Pure and shared: the client renders the files into the bundle; the host writes them again next to
each attempt's config.json, where the framework's script reads them.
"""

from __future__ import annotations

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import hf, launching, litgpt, trl

_FILES = {"hf": hf.files, "litgpt": litgpt.files, "trl": trl.files}


def files(config: RunConfig) -> dict[str, str]:
    """The framework's own files that belong beside this config.json, by name; nanogpt has none."""
    of_framework = _FILES.get(config.framework)
    if of_framework is None:
        return {}
    return {**of_framework(config), **launching.files(config)}


def command(config: RunConfig, python: str, config_path: str) -> list[str]:
    """The command that starts an attempt in the run's folder; `config_path` is relative to it."""
    return launching.command(config, python, config_path)
