"""The folder that holds the secrets of all runs, asked once for many of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from trainmaster.words.paths import Home

# A folder that changed so shortly ago may change again without another time: file systems count in
# ticks of some milliseconds.
_SETTLED_S = 1.0


class SecretsFolder:
    """Whether files may have come into the folder since one of them was missed.

    `version` is another one after a file has come, and None where nobody has just asked.
    """

    def __init__(self, home: Home) -> None:
        self._path = str(home.secrets("any").parent)
        self._seen: tuple[int, int] | None = None
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
        now = time.time()
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            seen, is_settled = (0, 0), True
        except OSError:
            return None  # each run's own file says why
        else:
            seen = status.st_ino, status.st_ctime_ns
            is_settled = now - status.st_ctime > _SETTLED_S
        if seen != self._seen or not self._was_settled:
            self._asked += 1
        self._seen, self._was_settled = seen, is_settled
        return self._asked
