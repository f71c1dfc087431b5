"""Runs the program that config.json names under `script`, as it is, in its own folder.

    python train.py config.json

Its command, what it saves and how it continues stand there. It is asked to end by SIGTERM.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trainer_runtime.host.script.relay import run_script

if __name__ == "__main__":
    sys.exit(run_script(Path(sys.argv[1])))
