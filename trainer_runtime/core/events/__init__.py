"""The lines of `events.jsonl` (the trainer's) and of `supervisor.jsonl` (the journal), by kind."""

from __future__ import annotations
