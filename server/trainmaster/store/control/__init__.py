"""`control.db`: what users asked for, and what was done about it.

Written through to the disk (synchronous FULL): a promise is recorded before it is carried out. Each
module holds the tables of one subject and the queries on them; `MIGRATIONS` creates them in order.
"""

from __future__ import annotations

from pathlib import Path

from trainmaster.store.control import (
    alerts,
    approvals,
    facts,
    hosts,
    idempotency,
    instances,
    kaggle,
    run_list,
    runs,
)
from trainmaster.store.control.alerts import AlertRecords
from trainmaster.store.control.approvals import ApprovalRecords
from trainmaster.store.control.facts import Facts
from trainmaster.store.control.hosts import HostRecords
from trainmaster.store.control.idempotency import IdempotencyKeys
from trainmaster.store.control.instances import InstanceRecords
from trainmaster.store.control.kaggle import KaggleRecords
from trainmaster.store.control.run_list import RunList
from trainmaster.store.control.runs import RunRecords
from trainmaster.store.control.slurm import SlurmRecords
from trainmaster.store.database import open_database

MIGRATIONS = (
    runs.TABLES + idempotency.RUN_KEYS,
    hosts.TABLE + runs.OPEN_RUNS_INDEX,
    alerts.TABLES,
    instances.TABLE + idempotency.INSTANCE_KEYS + approvals.TABLE + kaggle.TABLE + facts.TABLE,
    idempotency.ONE_TABLE,
    runs.DUE_RUNS_INDEXES,
    run_list.ENDS,
)


class Control(RunRecords, HostRecords):
    """The record of this home. Each method is one transaction."""

    def __init__(self, path: Path) -> None:
        self._connection = connection = open_database(path, MIGRATIONS, synchronous="FULL")
        self.facts = Facts(connection)
        self.keys = IdempotencyKeys(connection)
        RunRecords.__init__(self, connection, self.facts, self.keys)
        HostRecords.__init__(self, connection)
        self.list = RunList(connection)
        self.alerts = AlertRecords(connection)
        self.approvals = ApprovalRecords(connection)
        self.instances = InstanceRecords(connection, self.facts, self.keys)
        self.kaggle = KaggleRecords(connection, self.facts)
        self.slurm = SlurmRecords(self.facts)

    def version(self) -> tuple[int, int]:
        """Two numbers, one of which changes whenever this or another process has written."""
        others = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return int(others), self._connection.total_changes

    def close(self) -> None:
        self._connection.close()
