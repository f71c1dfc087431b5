"""The limits of what is read."""

from __future__ import annotations

# Of objects and lists within each other. Our own records have 6 at most.
MAX_DEPTH = 16
# Of a row of training data: the schema of a tool may be deep.
MAX_ROW_DEPTH = 100
# Of a record or a line of ours. Configurations have some 10 KB, findings 20.
MAX_RECORD_BYTES = 1 << 20
# Of what grows with its subject: lists of files, tokenizers, the header of a file of weights.
MAX_DOCUMENT_BYTES = 256 << 20
# Of objects, lists and their members in a document: an empty list takes 3 bytes of it and 64 here.
MAX_VALUES = 8_000_000
# Integers have 64 bits, as in SQLite.
LEAST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1
# What every reader of JSON holds exactly.
COUNTS_END = 2**53
# Unix seconds: up to the end of the year 9999, beyond which no date can be shown.
TIMES_END = 253_402_300_800.0
