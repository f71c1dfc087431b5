"""Reads the rows of a training once before it starts, with the packages of its environment.

`python -m trainer_runtime.train.data.prepare_rows REQUEST`: unreadable files and missing
columns are reported here, and the cache of `datasets` is ready when the trainer reads it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from trainer_runtime.core.decoding import DecodingError
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.inputs.bad_rows import COUNTS, noted_folder
from trainer_runtime.core.inputs.row_form import problem_of_columns, problem_of_row, rows_of
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.data.rows import leave_out_bad, load_rows

_CHECKED_ROWS = 100


def main(request_path: str) -> int:
    """Read the sources of a request's config; returns the exit code."""
    try:
        config = RunConfig.parse(Path(request_path).read_bytes())
        _leave_out_bad(config)
        training, held_out = load_rows(config)
        kind = rows_of(config.framework, config.method)
        # Without files for validation, each source's held-out rows stand for all of its rows.
        read = {"to train on": training} if config.data.validation else {}
        for name, rows in {**read, **held_out}.items():
            problem = problem_of_columns(kind, rows.column_names)
            for number in range(min(_CHECKED_ROWS, len(rows))):
                problem = problem or problem_of_row(kind, rows[number])
            if problem is not None:
                raise ConfigError(f"data source {name}: {problem}")
    except (ConfigError, DecodingError) as error:
        print(error, flush=True)
        return ExitCode.UNUSABLE
    counted = ", ".join(f"{len(rows):,} of {name}" for name, rows in held_out.items())
    print(f"{len(training):,} rows to train on, held out {counted}", flush=True)
    return 0


def _leave_out_bad(config: RunConfig) -> None:
    """Once for the prepared data; what was counted is kept for the data card.

    Raises:
        ConfigError: there are too many bad rows, or they can't be noted.
    """
    counts = noted_folder(config) / COUNTS
    if counts.exists():
        return
    counted = {source.name: leave_out_bad(source, config) for source in config.data.inputs}
    kept = {}
    for name, rows in counted.items():
        if rows is not None:
            kept[name] = {"rows": rows.rows, "bad_rows": rows.bad, "first_bad": rows.first}
            if rows.bad:
                print(f"{name}: {rows.report()}", flush=True)
    try:
        counts.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(counts, json.dumps(kept).encode())
    except OSError as error:
        raise ConfigError(f"the cache in {counts.parent} can't be written: {error}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
