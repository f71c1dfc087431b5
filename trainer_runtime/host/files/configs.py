"""The configurations in a run's folder, parsed."""

from __future__ import annotations

from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.decoding import DecodingError
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder

NOTHING = RunConfig.parse({})


def find_config(path: Path) -> RunConfig | None:
    """The configuration in `path`; None where there is none that can be used."""
    document = read_json(path)
    try:
        return None if document is None else RunConfig.parse(document, str(path))
    except DecodingError:
        return None


def config_of(run: RunFolder) -> RunConfig:
    """That which the run began with; one without values where it can't be used."""
    return find_config(run.config) or NOTHING


def newest_config(run: RunFolder, record: Record) -> RunConfig:
    """That of the newest attempt: a resume may have changed limits, recovery and steps."""
    attempt = record.current
    written = find_config(run.attempt(attempt.number).config) if attempt else None
    return written or config_of(run)
