"""What a metrics database says, by names: the same however it came to be."""

from __future__ import annotations

import json
from typing import Any

from trainmaster.store.metrics_store import MetricsStore

_SUMS = (
    "SELECT run_id, placement, attempt, segment, key, n, finite, first_x, last_x, last_t, last,"
    " flag, total, low, low_x, high, high_x"
    " FROM {} JOIN series USING (sid)"
)


def contents(store: MetricsStore) -> dict[str, list[Any]]:
    """All points and their sums, events, folds and offsets, sorted; series by what they are, not by
    number."""
    query = store.connection.execute
    series = query("SELECT run_id, placement, attempt, segment, key, sid FROM series").fetchall()
    points = [(*row[:5], *map(repr, point)) for row in series for point in store.points(row[5])]
    folds = [(*row[:3], json.loads(row[3])) for row in query("SELECT * FROM folds").fetchall()]
    return {
        "points": sorted(points),
        "blocks": sorted(query(_SUMS.format("blocks")).fetchall(), key=repr),
        "stats": sorted(query(_SUMS.format("stats")).fetchall(), key=repr),
        "events": sorted(query("SELECT * FROM events").fetchall(), key=repr),
        "folds": sorted(folds, key=lambda row: row[:3]),
        "offsets": sorted(query("SELECT * FROM offsets").fetchall()),
    }
