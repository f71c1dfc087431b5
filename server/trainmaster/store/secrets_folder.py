"""The folder that holds the secrets of all runs, asked once for many of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainmaster.home.paths import Home

# A folder whose change was first seen so shortly ago may change again without another time: file
# systems count in ticks, of two seconds at most.
_SETTLED_S = 3.0


class SecretsFolder:
    """Whether files may have come into the folder since one of them was missed.

    `version` is another one after a file has come, and None where nobody has just asked, or the
    folder can't be asked. `settled_s`: as long may a folder change without another time;
    `stat`: how the file system is asked.
    """

    def __init__(
        self,
        home: Home,
        *,
        settled_s: float = _SETTLED_S,
        stat: Callable[[str], os.stat_result] = os.stat,
    ) -> None:
        self._path = str(home.secrets("any").parent)
        self._settled_s, self._stat = settled_s, stat
        self._seen: tuple[int, ...] = ()
        self._first_seen = 0.0  # by this process's clock; the file system may have another
        self._was_settled = False
        self._asked = 0
        self.version: int | None = None

    @contextmanager
    def asked_once(self) -> Iterator[None]:
        """Inside, `version` is that of now. What is masked inside was received before: the secrets
        in it were stored before they were given to what wrote them.
        """
        self.version = self._ask()
        try:
            yield
        finally:
            self.version = None

    def _ask(self) -> int | None:
        began = time.monotonic()
        try:
            status = self._stat(self._path)
        except FileNotFoundError:
            seen: tuple[int, ...] = (0,)
        except OSError:
            return None  # each run's own file says why
        else:
            seen = status.st_dev, status.st_ino, status.st_ctime_ns, status.st_mtime_ns
        if seen != self._seen:
            self._seen, self._first_seen = seen, time.monotonic()
            self._was_settled = False
        if not self._was_settled:
            self._asked += 1
        self._was_settled = began - self._first_seen > self._settled_s
        return self._asked
