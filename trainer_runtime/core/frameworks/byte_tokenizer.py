"""The byte tokenizer as a Hugging Face tokenizer: token 0 to 255 is that byte, 256 the end.

A byte-level BPE without merges, which every library that reads `tokenizer.json` understands; it
gives the tokens that `box.prepare.shards` writes into shards.
"""

from __future__ import annotations

import json
from typing import Any

END_OF_TEXT = 256
VOCABULARY = 257
END_OF_TEXT_TOKEN = "<|endoftext|>"
FOLDER = "tokenizer"


def files() -> dict[str, str]:
    """The tokenizer's folder, as texts by path."""
    return {
        f"{FOLDER}/tokenizer.json": json.dumps(document(), ensure_ascii=False, indent=1) + "\n",
        f"{FOLDER}/tokenizer_config.json": json.dumps(settings(), indent=1) + "\n",
    }


def document() -> dict[str, Any]:
    """What `tokenizer.json` says of it."""
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": END_OF_TEXT,
                "content": END_OF_TEXT_TOKEN,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {letter: byte for byte, letter in enumerate(letters())}
            | {END_OF_TEXT_TOKEN: END_OF_TEXT},
            "merges": [],
        },
    }


def settings() -> dict[str, object]:
    """What `tokenizer_config.json` says of it."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT_TOKEN,
        "bos_token": END_OF_TEXT_TOKEN,
        "pad_token": END_OF_TEXT_TOKEN,
        "model_max_length": 1_000_000_000,
        "clean_up_tokenization_spaces": False,
    }


def letters() -> list[str]:
    """Byte by byte the letter that stands for it in byte-level vocabularies.

    Printable ones of Latin-1 stand for themselves; the others take letters from 256 on, in order
    (Radford et al. 2019, GPT-2's encoder).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
