"""Temporary folders for uploads to Kaggle, in the home, whose disk has enough space."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from trainmaster.home.paths import Home


def new_folder(home: Home) -> Path:
    """Create an empty folder with mode 0700; removes those of ended processes."""
    parent = home.kaggle_clients
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in parent.iterdir():
        owner = folder.name.partition("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
