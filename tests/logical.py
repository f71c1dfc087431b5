"""What a metrics database says, by names: the same however it came to be."""

from __future__ import annotations

import json
from typing import Any

from trainmaster.metrics_store import MetricsStore


def contents(store: MetricsStore) -> dict[str, list[Any]]:
    """All points, events, folds and offsets, sorted; series by what they are, not by number."""
    query = store.connection.execute
    points = query(
        "SELECT run_id, placement, attempt, segment, key, x, t, quote(value), flag"
        " FROM points JOIN series USING (sid)"
    ).fetchall()
    folds = [(*row[:3], json.loads(row[3])) for row in query("SELECT * FROM folds").fetchall()]
    return {
        "points": sorted(points),
        "events": sorted(query("SELECT * FROM events").fetchall(), key=repr),
        "folds": sorted(folds, key=lambda row: row[:3]),
        "sources": sorted(query("SELECT * FROM sources").fetchall()),
    }
