"""Shards of other libraries, written by these libraries themselves."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Of `streaming.MDSWriter` (mosaicml-streaming 0.13.0, which asks for another PyTorch): three
# samples with the columns label, meta and text.
_MDS = """
eNpVz10KAiEQB3C3XiI6hMzzErtLbEvH6LGIsJpaw49YLaLoNp2hC3SXzpGmUSuMg/rzL3YJIS9X/YSQoaupqyus
tThKtUS11huudgYmdA5cWUgp7I1WvhvbwML1aBWTGJxgKxReSLTMd4tn+08NvwRapVQdhQhzAPLQoDHcPTGJZ7DV
jWTWrUFujM+rmalDgL/j05aCS+5JOc6zqipHbv+ETcwpbj33wwH5jSv4/ew2Qy6QZvR5fz6+JmmZPJq8ZTotU0RT
fMwbCeJavQ==
"""


def mds_shard() -> bytes:
    """Its samples are `{"text": "Zeile 0 äö", "label": 0, "meta": {"n": 0}}`, and so on to 2."""
    return zlib.decompress(base64.b64decode(_MDS))


def write_webdataset(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A row's text is the member `txt`, what else it has `json`."""
    from webdataset import TarWriter

    with TarWriter(str(path)) as writer:
        for number, row in enumerate(rows):
            more = {name: value for name, value in row.items() if name != "text"}
            named = {"__key__": f"{number:06d}", "txt": row["text"]}
            writer.write({**named, "json": json.dumps(more).encode()} if more else named)


def write_tfrecord(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    from tfrecord import TFRecordWriter

    writer = TFRecordWriter(str(path))
    for row in rows:
        kinds = {name: "byte" if isinstance(value, str) else "int" for name, value in row.items()}
        values = {name: v.encode() if isinstance(v, str) else v for name, v in row.items()}
        writer.write({name: (values[name], kinds[name]) for name in row})
    writer.close()
