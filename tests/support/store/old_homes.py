"""Kept homes of earlier versions, by the commit that wrote them.

`tests/store/old_homes/COMMIT.tar.xz` holds a home without what is derived, installed or only a
lock: `control.db` as SQL (`control.sql`), the mirror, the runs of `local` and `debug`. Its folder
was /old/h1 there. It was made by that commit's own command line: runs that completed, failed and
were stopped, a trained one on `local`, a host, an alert, and by its own store: rented instances in
each state, an approval, a session at Kaggle.
"""

from __future__ import annotations

import io
import lzma
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "store" / "old_homes"
_WAS_AT = b"/old/h1"
_SQL = "control.sql"


def place_old_home(commit: str, home: Path) -> None:
    """Lay a kept home out as `home`, with the paths in it."""
    home.mkdir(mode=0o700, parents=True)
    data = lzma.decompress((FOLDER / f"{commit}.tar.xz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for entry in archive.getmembers():
            content = archive.extractfile(entry)
            assert content is not None
            path = home / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read().replace(_WAS_AT, str(home).encode()))
    sql = home / _SQL
    with closing(sqlite3.connect(home / "control.db", isolation_level=None)) as connection:
        connection.executescript(sql.read_text())
    sql.unlink()
