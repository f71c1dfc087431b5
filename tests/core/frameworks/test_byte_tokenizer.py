from __future__ import annotations

from pathlib import Path

import pytest

from trainer_runtime.core.frameworks import byte_tokenizer


@pytest.mark.engine
@pytest.mark.slow
def test_every_library_reads_bytes_as_their_own_numbers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer  # seconds, which each worker would spend to find tests

    for name, text in byte_tokenizer.files().items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / byte_tokenizer.FOLDER)
    text = "".join(map(chr, range(1, 0x250))) + "𝄞 ende"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text
    assert tokenizer.eos_token_id == byte_tokenizer.END_OF_TEXT
    assert len(tokenizer) == byte_tokenizer.VOCABULARY
