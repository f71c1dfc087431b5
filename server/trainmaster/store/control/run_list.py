"""Runs as a list shows them: read without their documents, ended ones with how they ended.

What an ended run ended as is derived from its records. It is kept here once somebody has worked it
out, so that a list of thousands of ended runs is read by index; a request or a replay forgets it.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.store.database import transaction
from trainmaster.store.run import Run

_COLUMNS = (
    "run_id, name, host, placement, labels, closed, cleaned, ended_state, ended_step, ended_target"
)
# ?1 and ?2: the run before the page; ?3 and ?4: label and its value; ?7: of a commit.
_PAGE = (
    f"SELECT {_COLUMNS}, created_t FROM runs WHERE {{}}"
    " AND created_t <= ?1 AND (created_t < ?1 OR run_id > ?2)"
    " AND (?3 IS NULL OR EXISTS (SELECT 1 FROM json_each(labels) AS given"
    " WHERE given.key = ?3 AND (?4 IS NULL OR given.value = ?4)))"
    " AND (?7 IS NULL OR json_extract(config, '$.script.commit') GLOB ?7 || '*')"
)


@dataclass(frozen=True, slots=True)
class End:
    """The state in which a run ended, its last step, and the last step of its training."""

    state: str
    step: int
    target_step: int | None


@dataclass(frozen=True, slots=True)
class ListedRun:
    """`end`: None of an open run, and of one of which it was not worked out yet."""

    run_id: str
    name: str
    host: str
    placement: int
    labels: Mapping[str, str]
    closed: bool
    cleaned: bool
    end: End | None
    created_t: float


class RunList:
    """Each method is one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def newest(
        self,
        limit: int,
        *,
        after: Run | ListedRun | None = None,
        only_open: bool = False,
        only_closed: bool = False,
        ended: str | None = None,
        label: str | None = None,
        code: str | None = None,
    ) -> list[ListedRun]:
        """At most `limit` runs, newest first; only those that come after one of them, or have a
        label (`key` or `key=value`), if given. `ended`: those that ended in this state, and those
        of which that is not known. `code`: the beginning of a program's commit, in hex."""
        key, equals, value = (label or "").partition("=")
        chosen = "closed = 0 AND " if only_open else "closed > 0 AND " if only_closed else ""
        wheres = [f"{chosen}?6 IS NULL"]
        if ended is not None:
            wheres = ["ended_state = ?6", "ended_state IS NULL"]
        rows = self._connection.execute(
            " UNION ALL ".join(_PAGE.format(where) for where in wheres)
            + " ORDER BY created_t DESC, run_id LIMIT ?5",
            (
                math.inf if after is None else after.created_t,
                "" if after is None else after.run_id,
                None if label is None else key,
                value if equals else None,
                limit,
                ended,
                code,
            ),
        )
        return [_listed(row) for row in rows]

    def record_ends(self, ends: Mapping[str, End]) -> None:
        """Keep how runs ended, unless they were opened again."""
        with transaction(self._connection) as connection:
            connection.executemany(
                "UPDATE runs SET ended_state = ?, ended_step = ?, ended_target = ?"
                " WHERE run_id = ? AND closed > 0",
                [(end.state, end.step, end.target_step, name) for name, end in ends.items()],
            )

    def forget_ends(self, run_id: str | None) -> None:
        """Of one run, or of all: what they were derived from is read again."""
        self._connection.execute(
            "UPDATE runs SET ended_state = NULL WHERE ended_state IS NOT NULL"
            " AND (?1 IS NULL OR run_id = ?1)",
            (run_id,),
        )


def _listed(row: tuple[Any, ...]) -> ListedRun:
    run_id, name, host, placement, labels, closed, cleaned, *end, created_t = row
    return ListedRun(
        run_id, name, host, placement, json.loads(labels), bool(closed), bool(cleaned),
        end=End(*end) if closed and end[0] is not None else None, created_t=created_t,
    )  # fmt: skip
