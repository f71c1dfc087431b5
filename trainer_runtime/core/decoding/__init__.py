"""JSON that came from a disk or from another host, as typed values: the one place that reads it.

`decode_fields` reads an object and `decode_value` any JSON, both within limits of size and depth;
`Fields` gives the values of an object by type and within the ranges of `limits`; a `JsonRecord` is
read and written by the annotations of its fields. Whatever does not fit raises one `DecodingError`,
which names the place and the field.
"""

from __future__ import annotations

from trainer_runtime.core.decoding.error import DecodingError, LimitError
from trainer_runtime.core.decoding.fields import Fields, named, number, only_numbers
from trainer_runtime.core.decoding.json_record import JsonRecord, SparseRecord
from trainer_runtime.core.decoding.json_text import decode_fields, decode_value
from trainer_runtime.core.decoding.limits import (
    MAX_DEPTH,
    MAX_DOCUMENT_BYTES,
    MAX_RECORD_BYTES,
    MAX_ROW_DEPTH,
)

__all__ = [
    "MAX_DEPTH",
    "MAX_DOCUMENT_BYTES",
    "MAX_RECORD_BYTES",
    "MAX_ROW_DEPTH",
    "DecodingError",
    "Fields",
    "JsonRecord",
    "LimitError",
    "SparseRecord",
    "decode_fields",
    "decode_value",
    "named",
    "number",
    "only_numbers",
]
