"""Lists the files that the client can fetch: one line of JSON per file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer_runtime.core.files.listing import chunk_digest, list_files


def print_files(folder: Path, options: argparse.Namespace) -> int:
    """Print a line per file, each as soon as it is known."""
    lines = (
        _files(folder, options.pattern) if options.command == "files" else _digest(folder, options)
    )
    for line in lines:
        print(json.dumps(line), flush=True)
    return 0


def _files(folder: Path, pattern: str) -> Iterator[Mapping[str, Any]]:
    for item in list_files(folder, pattern):
        yield item.to_dict()


def _digest(folder: Path, options: argparse.Namespace) -> Iterator[Mapping[str, Any]]:
    yield {"sha256": chunk_digest(folder, options.path, options.chunk, options.size)}
