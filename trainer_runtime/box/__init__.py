"""What runs on the box beside the trainer: supervisor, hold, telemetry, data preparation."""
