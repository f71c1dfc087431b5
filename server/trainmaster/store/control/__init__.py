"""`control.db`: what users asked for, and what was done about it.

Written through to the disk (synchronous FULL): a promise is recorded before it is carried out. Each
module holds the queries of one subject; `schema` holds the tables. Subjects that most runs have
nothing of are imported when they are first asked for.
"""

from __future__ import annotations

import sqlite3
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.errors.errors import StorageError
from trainmaster.store.control.facts import Facts
from trainmaster.store.control.hosts import HostRecords
from trainmaster.store.control.idempotency import IdempotencyKeys
from trainmaster.store.control.run_list import RunList
from trainmaster.store.control.runs import RunRecords
from trainmaster.store.control.schema import SCHEMA
from trainmaster.store.database import open_database
from trainmaster.store.disk_space import LACKS
from trainmaster.store.read_only import open_read_only

if TYPE_CHECKING:
    from trainmaster.store.control.alerts import AlertRecords
    from trainmaster.store.control.approvals import ApprovalRecords
    from trainmaster.store.control.instances import InstanceRecords
    from trainmaster.store.control.kaggle import KaggleRecords
    from trainmaster.store.control.slurm import SlurmRecords
    from trainmaster.store.control.volumes import VolumeRecords


class Control(RunRecords, HostRecords):
    """The record of this home. Each method is one transaction.

    `unwritable`: why nothing can be recorded, where the home can only be read.
    """

    def __init__(self, path: Path) -> None:
        self.unwritable: StorageError | None = None
        self._connection = connection = self._open(path)
        self.facts = Facts(connection)
        self.keys = IdempotencyKeys(connection)
        RunRecords.__init__(self, connection, self.facts, self.keys)
        HostRecords.__init__(self, connection)
        self.list = RunList(connection)

    def _open(self, path: Path) -> sqlite3.Connection:
        try:
            return open_database(path, SCHEMA, synchronous="FULL")
        except StorageError as error:
            if error.code not in LACKS:
                raise
            try:
                connection = open_read_only(path, SCHEMA)
            except sqlite3.Error:
                raise error from None  # it can't be read either
            self.unwritable = error
            return connection

    @cached_property
    def alerts(self) -> AlertRecords:
        from trainmaster.store.control.alerts import AlertRecords

        return AlertRecords(self._connection)

    @cached_property
    def approvals(self) -> ApprovalRecords:
        from trainmaster.store.control.approvals import ApprovalRecords

        return ApprovalRecords(self._connection)

    @cached_property
    def volumes(self) -> VolumeRecords:
        from trainmaster.store.control.volumes import VolumeRecords

        return VolumeRecords(self._connection, self.facts)

    @cached_property
    def instances(self) -> InstanceRecords:
        from trainmaster.store.control.instances import InstanceRecords

        return InstanceRecords(self._connection, self.facts, self.keys)

    @cached_property
    def kaggle(self) -> KaggleRecords:
        from trainmaster.store.control.kaggle import KaggleRecords

        return KaggleRecords(self._connection, self.facts)

    @cached_property
    def slurm(self) -> SlurmRecords:
        from trainmaster.store.control.slurm import SlurmRecords

        return SlurmRecords(self.facts)

    def version(self) -> tuple[int, int]:
        """Two numbers, one of which changes whenever this or another process has written."""
        others = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return int(others), self._connection.total_changes

    def close(self) -> None:
        self._connection.close()
