"""What an output folder doesn't record about its data."""

from __future__ import annotations

import pytest

from trainmaster.plan.frameworks import FRAMEWORKS


@pytest.mark.parametrize(
    ("framework", "form", "words"),
    [
        ("nanogpt", "tokens", ["which tokens it was trained on"]),
        ("hf", "text", ["run_clm.py's reader of text files drops them"]),
        ("hf", "jsonl", []),
        ("trl", "text", []),
        ("litgpt", "text", []),
    ],
)
def test_what_the_loss_depends_on_and_no_folder_records_is_warned_of(
    framework: str, form: str, words: list[str]
) -> None:
    data = {"tokenizer": "none", "sources": [{"name": "main", "format": form}]}
    warnings = list(FRAMEWORKS[framework].unrecorded(data))
    assert len(warnings) == len(words)
    assert all(word in warning for word, warning in zip(words, warnings, strict=True))
