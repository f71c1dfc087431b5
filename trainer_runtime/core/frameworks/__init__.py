"""What stands between a resolved config.json and a framework: its own files, and its command line.

Pure, and the same on both sides: the operator's side renders the files into the bundle, the box
writes them anew beside each attempt's config.json. A framework's script reads them from there.
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
    """What starts an attempt, in the run's folder; `config_path` as seen from there."""
    return launching.command(config, python, config_path)
