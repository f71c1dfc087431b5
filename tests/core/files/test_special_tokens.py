"""The tokens of a tokenizer's folder that objectives of pretraining take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.train.model_folders import write_tokenizer

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.files.special_tokens import SpecialTokens
from trainer_runtime.core.files.tokenizer_folder import TokenizerFolder, read_tokenizer_folder

_SENTINELS = ("<extra_id_0>", "<extra_id_1>", "<extra_id_3>")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, SpecialTokens(257, 258, (260, 261))),
        ({"mask_token": "[M]"}, SpecialTokens(259, 258, (260, 261))),
        (
            {"mask_token": {"content": "[M]", "lstrip": True}, "cls_token": "[MASK]"},
            SpecialTokens(259, 257, (260, 261)),
        ),
        ({"mask_token": "not there"}, SpecialTokens(257, 258, (260, 261))),
    ],
)
def test_special_tokens_are_those_that_the_settings_name_else_the_customary(
    tmp_path: Path, settings: dict[str, Any], expected: SpecialTokens
) -> None:
    folder = write_tokenizer(tmp_path / "words", ("[MASK]", "[CLS]", "[M]", *_SENTINELS))
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    described = read_tokenizer_folder(str(folder))
    assert described.special == expected
    assert TokenizerFolder.of(Fields(described.to_dict(), "tokenizer")).special == expected


def test_a_tokenizer_without_a_mask_begins_no_sequence(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "words", ("<s>",))
    assert read_tokenizer_folder(str(folder)).special == SpecialTokens()
