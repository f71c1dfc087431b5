"""Shards that no format of ours reads, recognized by the names that their libraries give them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SHARDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(ending), library)
    for ending, library in (
        (r".*\.mds(\.\w+)?", "MosaicML Streaming (MDS)"),
        (r"(.*/)?chunk-\d+-\d+(\.\w+)?\.bin(\.\w+)?", "LitData"),
        (r".*\.tar(\.\w+)?|.*\.tgz", "WebDataset, or other tar archives"),
        (r".*\.tfrecords?(\.\w+)?|.*[.-]tfrecords?-\d+-of-\d+(\.\w+)?", "TFRecord"),
        (r".*\.(array_record|arrayrecord|beton|lance)", "ArrayRecord, FFCV or Lance"),
    )
)


def problem_of_shards(names: Iterable[str]) -> str | None:
    """Why a folder with files of these names is not read as text; None where it may be."""
    for name in names:
        for pattern, library in _SHARDS:
            if pattern.fullmatch(name):
                return (
                    f"{name} is a shard of {library}, which no format here reads: write its texts "
                    "as JSON Lines or Parquet with a column `text`, or train by a program of "
                    "yours that reads the shards (framework script)"
                )
    return None
