"""Kept homes of earlier versions, by the commit that wrote them.

`tests/store/old_homes/COMMIT.tar.xz` holds a home without what is derived, installed or only a
lock: `control.db` as SQL (`control.sql`), the mirror, the runs of `local` and `debug`. Its folder
was /old/h1 there. It was made by that commit's own command line: runs that completed, failed and
were stopped, a trained one on `local`, a host, an alert, and by its own store: rented instances in
each state, an approval, a session at Kaggle.

`COMMIT-live.tar.xz` holds a home and its host as a launch left them, the moment before the host's
supervisor began: `start_supervisor` then starts it with the runtime of that commit, which lies in
the run's folder (without what other frameworks and kinds of hosts take of it).
"""

from __future__ import annotations

import io
import json
import lzma
import os
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "store" / "old_homes"
_WAS_AT, _PYTHON = b"/old/h1", b"/old/python"
_SQL = "control.sql"


def place_old_home(name: str, home: Path) -> None:
    """Lay a kept home out as `home`, with the paths and the interpreter in it."""
    home.mkdir(mode=0o700, parents=True)
    data = lzma.decompress((FOLDER / f"{name}.tar.xz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for entry in archive.getmembers():
            content = archive.extractfile(entry)
            assert content is not None
            path = home / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = content.read().replace(_WAS_AT, str(home).encode())
            path.write_bytes(data.replace(_PYTHON, sys.executable.encode()))
    sql = home / _SQL
    with closing(sqlite3.connect(home / "control.db", isolation_level=None)) as connection:
        connection.executescript(sql.read_text())
    sql.unlink()


def start_supervisor(run: Path) -> int:
    """The pid of a supervisor, started as that commit's client did, by the runtime in the run's
    folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "trainer_runtime", "start", "."]
    done = subprocess.run(command, cwd=run, env=environment, capture_output=True, check=True)
    return int(json.loads(done.stdout)["pid"])
