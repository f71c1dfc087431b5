"""Tiny models and tokenizers for tests."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer_runtime.core.frameworks import byte_tokenizer

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "hidden_size": 32,
    "intermediate_size": 64,
    "vocab_size": 320,
    "max_position_embeddings": 128,
}


def write_model(
    folder: Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    tokenizer: bool = True,
    **config: Any,
) -> Path:
    """A folder as `save_pretrained` leaves it; weights are zeros of these shapes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    write_safetensors(folder / "model.safetensors", shapes or {"embed": (320, 32), "up": (32, 64)})
    if tokenizer:
        write_tokenizer(folder)
    return folder


def write_safetensors(file: Path, shapes: Mapping[str, Sequence[int]]) -> None:
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    encoded = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(encoded)) + encoded + bytes(end))


def write_tokenizer(folder: Path, words: Sequence[str] = ()) -> Path:
    """The byte tokenizer, and merges of its own: `words` are tokens from 257 on."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in byte_tokenizer.files().items():
        (folder / Path(path).name).write_text(text)
    if words:
        file = folder / "tokenizer.json"
        document = json.loads(file.read_text())
        document["added_tokens"] += [
            {**document["added_tokens"][0], "id": 257 + number, "content": word, "special": False}
            for number, word in enumerate(words)
        ]
        file.write_text(json.dumps(document))
    return folder


def write_sentencepiece(folder: Path) -> Path:
    """A `tokenizer.model` of four pieces."""
    pieces = [b"<unk>", b"<s>", b"</s>", "▁a".encode()]
    entries = [b"\x0a" + bytes([len(p)]) + p + b"\x15\0\0\0\0\x18\x02" for p in pieces]
    model = b"".join(b"\x0a" + bytes([len(e)]) + e for e in entries) + b"\x12\x02\x08\x01"
    (folder / "tokenizer.model").write_bytes(model)
    return folder
