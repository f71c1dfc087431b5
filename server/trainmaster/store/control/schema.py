"""The tables of `control.db`, and how each version of the schema came from the one before.

Apart from the queries on them: a process that reads one run imports those of few subjects. A change
of the tables is a new step, its digest, and a home of the version before in `tests/store/old_homes`
(docs/design/homes.md).
"""

from __future__ import annotations

from trainmaster.store.control.earlier_instances import rename_instances
from trainmaster.store.migration import Schema

# The name of the key that seals the copies of runs' records on hosts.
RECORD_KEY = "record_key"
_RUNS = """
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_t REAL NOT NULL,
        host TEXT NOT NULL, placement INTEGER NOT NULL DEFAULT 1,
        spec TEXT NOT NULL, config TEXT NOT NULL, plan TEXT NOT NULL, labels TEXT NOT NULL,
        closed INTEGER NOT NULL DEFAULT 0, cleaned INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE placements (
        run_id TEXT NOT NULL REFERENCES runs, number INTEGER NOT NULL, host TEXT NOT NULL,
        launcher TEXT NOT NULL, folder TEXT NOT NULL, created_t REAL NOT NULL, placed_t REAL,
        PRIMARY KEY (run_id, number)
    );
    CREATE TABLE requests (
        run_id TEXT NOT NULL REFERENCES runs, generation INTEGER NOT NULL, t REAL NOT NULL,
        desired TEXT NOT NULL, delivered_t REAL,
        PRIMARY KEY (run_id, generation)
    );
    """
_RUN_KEYS = """
    CREATE TABLE idempotency (
        key TEXT PRIMARY KEY, action TEXT NOT NULL, asked TEXT NOT NULL, run_id TEXT NOT NULL,
        t REAL NOT NULL
    );
    """
_HOSTS = """
    CREATE TABLE hosts (name TEXT PRIMARY KEY, body TEXT NOT NULL, created_t REAL NOT NULL);
    """
_OPEN_RUNS_INDEX = """
    CREATE INDEX open_runs ON runs (host, run_id, placement) WHERE closed = 0;
    """
_ALERTS = """
    CREATE TABLE alerts (
        id TEXT PRIMARY KEY, run_id TEXT NOT NULL, name TEXT NOT NULL, severity TEXT NOT NULL,
        condition TEXT NOT NULL, destination TEXT NOT NULL, sender TEXT NOT NULL,
        origin TEXT NOT NULL, created_t REAL NOT NULL, removed_t REAL
    );
    CREATE UNIQUE INDEX alert_names ON alerts (run_id, name) WHERE removed_t IS NULL;
    CREATE TABLE alert_runs (
        run_id TEXT PRIMARY KEY, delivered TEXT, watched TEXT, watched_to_end INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE alert_messages (
        id TEXT PRIMARY KEY, run_id TEXT NOT NULL, destination TEXT NOT NULL, body TEXT NOT NULL,
        fired_t REAL NOT NULL, phase TEXT NOT NULL, tries INTEGER NOT NULL, due_t REAL, reason TEXT
    ) WITHOUT ROWID;
    CREATE INDEX due_messages ON alert_messages (due_t) WHERE due_t IS NOT NULL;
    """
_INSTANCES = """
    CREATE TABLE instances (
        tag TEXT PRIMARY KEY, host TEXT NOT NULL, provider TEXT NOT NULL, state TEXT NOT NULL,
        provider_id TEXT, intended_t REAL NOT NULL, lease_end_t REAL NOT NULL,
        usd_per_h REAL NOT NULL, budget_usd REAL NOT NULL, ended_t REAL, body TEXT NOT NULL
    );
    CREATE INDEX open_instances ON instances (state) WHERE ended_t IS NULL;
    """
_INSTANCE_KEYS = """
    CREATE TABLE instance_keys (
        key TEXT PRIMARY KEY, asked TEXT NOT NULL, tag TEXT NOT NULL REFERENCES instances
    ) WITHOUT ROWID;
    """
_APPROVALS = """
    CREATE TABLE approvals (
        id TEXT PRIMARY KEY, action TEXT NOT NULL, asked TEXT NOT NULL, body TEXT NOT NULL,
        quoted_t REAL NOT NULL, expires_t REAL NOT NULL, approved_t REAL, used_t REAL
    ) WITHOUT ROWID;
    """
_KERNEL_SESSIONS = """
    CREATE TABLE kernel_sessions (
        run_id TEXT NOT NULL REFERENCES runs, number INTEGER NOT NULL, state TEXT NOT NULL,
        intended_t REAL NOT NULL, ended_t REAL, body TEXT NOT NULL,
        PRIMARY KEY (run_id, number)
    ) WITHOUT ROWID;
    """
_FACTS = """
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    """
# Until then, keys of runs and keys of instances had a table each.
_KEYS_IN_ONE_TABLE = """
    CREATE TABLE idempotency_keys (
        kind TEXT NOT NULL, key TEXT NOT NULL, action TEXT NOT NULL, asked TEXT NOT NULL,
        result TEXT NOT NULL, PRIMARY KEY (kind, key)
    ) WITHOUT ROWID;
    INSERT INTO idempotency_keys SELECT 'run', key, action, asked, run_id FROM idempotency;
    INSERT INTO idempotency_keys SELECT 'instance', key, 'provision', asked, tag FROM instance_keys;
    DROP TABLE idempotency;
    DROP TABLE instance_keys;
    """
# `closed`: 0 while the run is open; 1 once it ended and was read to the end; 2 once, moreover, this
# machine has nothing left to do for it. Most runs of an old home are at 2, and no round reads them.
_DUE_RUNS_INDEXES = """
    CREATE INDEX due_runs ON runs (created_t DESC, run_id) WHERE closed < 2;
    CREATE INDEX newest_runs ON runs (created_t DESC, run_id);
    """
_ENDS = """
    ALTER TABLE runs ADD COLUMN ended_state TEXT;
    ALTER TABLE runs ADD COLUMN ended_step INTEGER;
    ALTER TABLE runs ADD COLUMN ended_target INTEGER;
    CREATE INDEX ended_runs ON runs (ended_state, created_t DESC, run_id);
    """

_OPEN_RUNS_BY_HOST = "CREATE INDEX open_runs ON runs (host, run_id, placement) WHERE closed = 0"

SCHEMA = Schema(
    steps=(
        _RUNS + _RUN_KEYS,
        _HOSTS + _OPEN_RUNS_INDEX,
        _ALERTS,
        _INSTANCES + _INSTANCE_KEYS + _APPROVALS + _KERNEL_SESSIONS + _FACTS,
        _KEYS_IN_ONE_TABLE,
        _DUE_RUNS_INDEXES,
        _ENDS,
    ),
    released=(
        "30c8c694a2b32639",
        "9e1588a68648cc38",
        "8294dd4535107e08",
        "34110c2aba305c91",
        "8829e46bf205f754",
        "a8404c32aeff7a4b",
        "ccbfa76f31346841",
    ),
    # Until the rule of `released`, tables were changed under the same number.
    variants={
        "961ba85826914432": (2, _OPEN_RUNS_BY_HOST),
        "f94053345945b7f9": (4, rename_instances),
        "f646732e9f298209": (5, rename_instances),
    },
    # From the beginning: a backup from before the first launch knows later runs by it.
    fills=f"INSERT OR IGNORE INTO facts VALUES ('{RECORD_KEY}', lower(hex(randomblob(32))))",
)
