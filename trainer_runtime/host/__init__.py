"""Runs on the host beside the trainer: supervisor, hold, telemetry, data preparation."""
