"""Facts of a Python interpreter, reported by itself.

`PYTHON -m trainer_runtime.host.environment.interpreter_facts`. Nothing is imported that costs time,
and the packages' versions are read off the names of their folders: the whole takes some 30 ms. It
runs with interpreters that are too old for the rest of the runtime, so that these can report, too.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import site
import sys
from typing import Any


def facts() -> dict[str, Any]:
    """The interpreter's own account of itself."""
    distributions = _distributions()
    return {
        "python": sys.executable,
        "version": platform.python_version(),
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "sites": [path for path in site.getsitepackages() if os.path.isdir(path)],
        "user_site": bool(site.ENABLE_USER_SITE),
        "distributions": distributions,
        "torch_stamp": _stamp("torch") if "torch" in distributions else None,
        "venv": _has("venv"),
        "ensurepip": _has("ensurepip"),
    }


def _distributions() -> dict[str, str]:
    """The packages on the path; of one that is there twice, the first counts."""
    versions: dict[str, str] = {}
    for folder in sys.path:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            stem, ending = os.path.splitext(name)
            if ending not in (".dist-info", ".egg-info") or "-" not in stem:
                continue
            package, version = stem.split("-")[:2]
            versions.setdefault(package.replace("_", "-").replace(".", "-").lower(), version)
    return versions


def _stamp(package: str) -> str | None:
    """Changes when the package is installed again."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return f"{spec.origin} {os.stat(spec.origin).st_mtime_ns}"


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


if __name__ == "__main__":
    print(json.dumps(facts()))
