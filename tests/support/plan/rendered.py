"""Training scripts as tests run them: rendered as for a bundle, as a file or as a module."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from trainmaster.home.assets import find_assets
from trainmaster.plan.script import script_by, training_script

SCRIPT = "train.py"


def script_text(framework: str, **choices: str) -> str:
    """A framework's script by its choices."""
    return script_by(framework, choices, find_assets())


def write_script(folder: Path, config: Mapping[str, Any]) -> Path:
    """Puts the script of a config into a run's folder."""
    path = folder / SCRIPT
    path.write_text(training_script(config, find_assets()))
    return path


def load_script(folder: Path) -> ModuleType:
    """The script in a run's folder as a module, whose `main` was not called."""
    described = importlib.util.spec_from_file_location("training_script", folder / SCRIPT)
    assert described is not None and described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module
