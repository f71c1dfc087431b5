"""From hosts into the store: follow, ingest, and a run's folded view."""
