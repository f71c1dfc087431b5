"""Everything that a service works with, opened from one home."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.backends import Backend, open_backend
from trainmaster.errors.errors import StorageError
from trainmaster.home.paths import Home
from trainmaster.settings.policy import UNBOUND, Policy
from trainmaster.store.control import Control
from trainmaster.store.database import out_of_room, storage_error
from trainmaster.store.disk_space import LACKS, NOT_WRITABLE, is_lack_of_room, takes_more
from trainmaster.store.host_record import HostRecord
from trainmaster.store.metrics_store import MetricsStore
from trainmaster.store.mirror import Mirror
from trainmaster.store.private_home import find_readable_home
from trainmaster.store.reserve import begin_reserve
from trainmaster.sync.kept_passes import KeptPasses

if TYPE_CHECKING:
    import asyncio

    from trainmaster.answers.overview import OverviewAnswer


class Workspace:
    """The home's databases, mirror and backends. Not to be shared between threads.

    `policy_now` gives the limits of the caller; a server sets those of an agent. `host_reads`: the
    newest read of each host that answers need not wait for. `newest_overview`: when it was made, of
    what, and itself.
    """

    def __init__(self, home: Home) -> None:
        self.home = home
        self.policy_now: Callable[[], Policy] = lambda: UNBOUND
        self.control = Control(home.control_db)
        self.mirror = Mirror(home.mirror)
        self.kept_passes = KeptPasses()
        self._unwritable: StorageError | None = None
        self.host_reads: dict[str, asyncio.Task[None]] = {}
        self.newest_overview: tuple[float, object, OverviewAnswer] | None = None
        self._backends: dict[str, tuple[HostRecord | None, Backend]] = {}
        self._replaced: list[Backend] = []

    @property
    def unwritable(self) -> StorageError | None:
        """Why the home can only be read: its disk is full, or has its margin left. What is on
        record is answered then, and nothing new is read from hosts."""
        return self._refused or out_of_room(self.home.metrics_db)

    @property
    def _refused(self) -> StorageError | None:
        """The error by which the home took no more."""
        if self._unwritable is not None and takes_more(self.home.root):
            self._unwritable = None
            self.reopen_metrics()
        return self._unwritable or self.control.unwritable

    def found_unwritable(self, error: StorageError) -> None:
        """Record that the home took no more, while it was open."""
        self._unwritable = error

    @property
    def policy(self) -> Policy:
        """What the caller may do without a person's approval.

        Raises:
            StateError: `SETTINGS_NOT_READABLE`.
        """
        return self.policy_now()

    @cached_property
    def metrics(self) -> MetricsStore:
        """Opened when it is first needed: leases end without it. Only to read, where the home
        takes no more.

        Raises:
            StorageError: it can't be used.
        """
        if self._refused is None:
            try:
                return self._writable_metrics()
            except StorageError as error:
                is_damaged = error.code == NOT_WRITABLE and takes_more(self.home.root)
                if error.code not in LACKS or is_damaged:
                    raise
                self.found_unwritable(error)
        return MetricsStore(self.home.metrics_db, writable=False)

    def _writable_metrics(self) -> MetricsStore:
        store = MetricsStore(self.home.metrics_db)
        if store.replay_due and next(self.mirror.placements(), None) is None:
            with store.writing():
                store.replayed()  # there is nothing to rebuild it from
        return store

    def backend(self, host: str) -> Backend:
        """The backend of a host's name.

        Raises:
            HostError: `HOST_UNKNOWN`.
        """
        record = self.control.host(host)
        known = self._backends.get(host)
        if known is None or known[0] != record:  # a host may be replaced by another of its name
            if known is not None:
                self._replaced.append(known[1])
            opened = open_backend(self.home, host, record, self.control)
            known = self._backends[host] = (record, opened)
        return known[1]

    def reopen_metrics(self) -> None:
        """Open `metrics.db` again when it is next needed: it may have been damaged."""
        if "metrics" in self.__dict__:
            self.__dict__.pop("metrics").close()

    async def disconnect(self) -> None:
        """End the reads of hosts and close the connections to them; the next call that needs one
        reconnects."""
        for read in self.host_reads.values():
            read.cancel()
        for backend in [*self._replaced, *(known[1] for known in self._backends.values())]:
            await backend.disconnect()

    def close(self) -> None:
        if "metrics" in self.__dict__:
            self.metrics.close()
        self.control.close()


@contextmanager
def open_workspace(environment: Mapping[str, str]) -> Iterator[Workspace]:
    """The workspace of the home that `environment` names.

    Raises:
        StorageError: `HOME_NOT_PRIVATE`, `HOME_IS_NEWER`, `HOME_OF_OTHER_VERSION`, `DISK_FULL`,
            `ROOT_NOT_WRITABLE`, `DATABASE_DAMAGED`; also for what a database runs into later.
    """
    workspace = Workspace(find_readable_home(environment))
    if workspace.unwritable is None:
        begin_reserve(workspace.home)
    try:
        yield workspace
    except sqlite3.Error as error:
        raise storage_error(error, workspace.home.metrics_db) from error
    except OSError as error:
        if not is_lack_of_room(error):
            raise
        path = error.filename if isinstance(error.filename, str) else workspace.home.root
        raise storage_error(error, Path(path)) from error
    finally:
        workspace.close()
