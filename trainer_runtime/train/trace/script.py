"""The training's script as a module, which trains nothing when it is imported."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


def loaded_script(folder: Path) -> Any:
    spec = spec_from_file_location("traced_script", folder / "train.py")
    assert spec is not None and spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    return script
