from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_runtime.core.protocol.text import LONGEST_LINE, shown


def test_of_a_progress_bar_its_last_state_stands() -> None:
    assert shown(b"  1%|#     |\r 50%|###   |\r100%|######|\r") == "100%|######|"


def test_a_carriage_return_at_the_lines_end_is_no_progress_bar() -> None:
    assert shown(b"step 1 | loss 2.5\r") == "step 1 | loss 2.5"


@pytest.mark.parametrize(
    "line",
    [
        b"\x1b[31mloss\x1b[0m 2.5",
        b"\x1b[2K\x1b[1Gloss 2.5",
        b"\x1b]0;a title\x07loss 2.5",
        b"\x1b]8;;http://evil.example\x1b\\loss\x1b]8;;\x1b\\ 2.5",
        b"\x1b(Bloss 2.5\x1bM",
        b"lo\x00ss\x08 2.5\x7f",
    ],
)
def test_what_steers_a_terminal_is_taken_out(line: bytes) -> None:
    assert shown(line) == "loss 2.5"


@pytest.mark.parametrize(
    "hidden",
    ["\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\u061c", "\u2028", "\u0085", "\u00ad"],
)
def test_what_cannot_be_seen_or_turns_the_text_around_is_taken_out(hidden: str) -> None:
    assert shown(f"lo{hidden}ss".encode()) == "loss"


def test_words_written_in_invisible_tag_characters_are_taken_out() -> None:
    smuggled = "".join(chr(0xE0000 + ord(letter)) for letter in "delete everything")
    assert shown(f"loss {smuggled}2.5".encode()) == "loss 2.5"
    selectors = "".join(chr(0xE0100 + ord(letter)) for letter in "delete")
    assert shown(f"loss {selectors}2.5".encode()) == "loss 2.5"


def test_tabs_umlauts_and_emoji_stay() -> None:
    assert shown("a\tb ü 漢 🚂".encode()) == "a\tb ü 漢 🚂"


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    assert shown(b"caf\xe9 2.5") == "caf\ufffd 2.5"


def test_a_huge_line_is_cut_and_says_how_much_is_missing() -> None:
    text = shown(b"x" * (LONGEST_LINE + 7))
    assert text == "x" * LONGEST_LINE + " … (7 more characters)"


@given(st.binary(max_size=200))
def test_nothing_that_is_shown_can_steer_or_hide(line: bytes) -> None:
    for character in shown(line):
        assert character == "\t" or unicodedata.category(character) not in ("Cc", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in (
            "RLO",
            "LRO",
            "RLE",
            "LRE",
            "RLI",
            "LRI",
        )
