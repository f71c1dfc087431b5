"""Values and reasons that several frameworks' places have in common."""

from __future__ import annotations

from trainmaster.plan.fields.place import nowhere

ROWS = ("text", "jsonl", "parquet", "arrow", "hf", "preference")
TEXTS = ("text", "jsonl", "parquet", "arrow", "hf", "tokens")
SCHEDULES = ("cosine", "linear", "constant", "inverse_sqrt", "wsd")
PRECISIONS = ("auto", "fp32", "bf16", "fp16")
NO_PREFERENCES = "preferences are for trl's dpo, kto and reward"
READS_SHARDS = "it reads token shards: take hf to stream"
OWN_LOSS = nowhere("the framework's loss is its own")
