"""Whether a framework can be imported: `PYTHON -m trainer_runtime.train.checks.framework_check
MODULE…`.

Run as a process of its own, since a package that doesn't go with its neighbours may take it along.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Sequence

from trainer_runtime.core.frameworks.packages import DISPENSABLE


def check(modules: Sequence[str]) -> dict[str, str]:
    """What of the modules can't be imported, and why.

    Where any can't, what is broken and could be done without stands before it: that alone may be
    the reason.
    """
    broken = _broken(modules)
    if not broken:
        return {}
    there = [name for name in DISPENSABLE if importlib.util.find_spec(name) is not None]
    return {**_broken(there), **broken}


def _broken(modules: Sequence[str]) -> dict[str, str]:
    failures = {}
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a broken package raises
            words = " ".join(str(error).split())
            failures[name] = f"{type(error).__name__}: {words}"
    return failures


if __name__ == "__main__":
    print(json.dumps(check(sys.argv[1:])))
