"""Prints what hosts install for packages, with digests: `python scripts/locked.py NAME...`.

Left out is what is built beside a PyTorch; `--only`: the named packages alone, whatever they are.
"""

from __future__ import annotations

import sys

from trainer_runtime.core.environment.lock import locked
from trainer_runtime.core.frameworks.packages import BUILT_IN_PLACE


def main(arguments: list[str]) -> int:
    names = [argument for argument in arguments if argument != "--only"]
    for package in locked(names) or ():
        if (package.name in names) if "--only" in arguments else package.name not in BUILT_IN_PLACE:
            print(package)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
