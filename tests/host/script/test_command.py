"""The words of a program's command, as it is started."""

from __future__ import annotations

import pytest

from trainer_runtime.host.script.command import fill_in

_VALUES = {"seed": "7", "data": "/d", "data.own": "/o"}


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        ("--seed={seed}", "--seed=7"),
        ("{data}:{data.own}", "/d:/o"),
        ("{{seed}}-{{epoch}}-{seed}", "{seed}-{epoch}-7"),
        ('${seed} {epoch} {"seed": 1}', '${seed} {epoch} {"seed": 1}'),
        ("{gpus}", "{gpus}"),  # nothing is known of it here
    ],
)
def test_placeholders_stand_for_their_values_unless_braces_are_doubled(
    word: str, filled: str
) -> None:
    assert fill_in(word, _VALUES) == filled
