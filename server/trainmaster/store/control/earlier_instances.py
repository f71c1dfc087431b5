"""Instances as homes of schema versions 4 and 5 recorded them at first: as `boxes`.

The tables were renamed, and the fields of `body` typed, without a new number. This is the step that
was missing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

EARLIER_TABLE = "boxes"
_FIELDS = {
    "offer": "offer",
    "request": "requested",
    "root": "root",
    "bounds": "timeouts",
    "agreed_by": "agreed_by",
    "own_timer": "lease_timer",
    "ends_itself": "can_self_terminate",
    "asked_t": "create_requested_t",
    "created_t": "created_t",
    "seen_t": "first_listed_t",
    "ready_t": "ready_t",
    "timer_t": "timer_checked_t",
    "end_asked_t": "end_requested_t",
    "waits_for": "boot_problem",
    "trouble": "last_error",
    "release": "release",
    "release_refused": "release_refusal",
    "refused_t": "release_refused_t",
    "mirrored": "mirrored_runs",
    "lost": "loss",
    "reason": "end_reason",
    "error": "end_error",
}
_RELEASE = {"t": "requested_t", "force": "force", "why": "reason", "agreed_by": "agreed_by"}
_ERRORS = frozenset({"trouble", "release_refused", "error"})
_OF_AN_ERROR = {name: name for name in ("code", "message", "fix", "retryable", "field")}


def rename_instances(connection: sqlite3.Connection) -> None:
    """Rename tables and fields; what a field holds stays as it is."""
    connection.execute(f"ALTER TABLE {EARLIER_TABLE} RENAME TO instances")
    connection.execute("DROP INDEX open_boxes")
    connection.execute("CREATE INDEX open_instances ON instances (state) WHERE ended_t IS NULL")
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'box_keys'").fetchone():
        connection.execute("ALTER TABLE box_keys RENAME TO instance_keys")
    rows = connection.execute("SELECT tag, CAST(body AS BLOB) FROM instances").fetchall()
    connection.executemany(
        "UPDATE instances SET body = ? WHERE tag = ?",
        [(json.dumps(_of_instance(json.loads(body))), tag) for tag, body in rows],
    )


def _of_instance(body: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, new_name in _FIELDS.items():
        value = body.get(name)
        if value is None:
            continue
        if name in _ERRORS:
            value = _renamed(value, _OF_AN_ERROR)
        elif name == "release":
            value = _renamed(value, _RELEASE)
        fields[new_name] = value
    return fields


def _renamed(value: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[name]: each for name, each in value.items() if name in names}
