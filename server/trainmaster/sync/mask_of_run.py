"""What masks a run's secrets, as they are known at that moment."""

from __future__ import annotations

import os
from collections.abc import Callable

from trainmaster.home.paths import Home
from trainmaster.store.masking import Mask, mask_of
from trainmaster.store.secrets_folder import SecretsFolder


class MaskOfRun:
    """A run's mask from its current secrets; the last known mask once they were removed.

    Where `folder` was just asked, a file that was missed is not asked for again. `stat`: how the
    file system is asked.
    """

    def __init__(
        self,
        home: Home,
        run_id: str,
        folder: SecretsFolder | None = None,
        *,
        stat: Callable[[str], os.stat_result] = os.stat,
    ) -> None:
        self._home = home
        self._run_id = run_id
        self._path = str(home.secrets(run_id))
        self._folder = folder or SecretsFolder(home)
        self._stat = stat
        self._missed_at: int | None = None
        self._seen: tuple[int, int, int] | None = None
        self._mask: Mask | None = None

    def __call__(self) -> Mask | None:
        """Raises:
        OSError: the values can't be read, so nothing may be kept of the run.
        """
        version = self._folder.version
        if version is not None and version == self._missed_at:
            return self._mask
        try:
            status = self._stat(self._path)
        except FileNotFoundError:
            self._missed_at = version
            return self._mask
        self._missed_at = None
        seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        if seen != self._seen:
            try:
                mask = mask_of(self._home, self._run_id)
            except ValueError as error:
                raise OSError(f"{self._path} can't be read: {error}") from error
            if mask.reach_bytes:  # else the file was removed meanwhile
                self._mask = mask
            self._seen = seen
        return self._mask
