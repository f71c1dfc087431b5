"""Watching a run: telemetry, stalls, log scan, findings."""
