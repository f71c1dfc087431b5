"""Words derived from an expression: every text that matches it has them."""

from __future__ import annotations

from collections import Counter

import pytest
from support.core.synthetic_logs import DIALECTS, made_log, noise

from trainer_runtime.core.diagnosis.signatures import CATALOGUE
from trainer_runtime.core.diagnosis.signatures.keywords import keywords_of
from trainer_runtime.core.diagnosis.signatures.shapes import Keywords, ShapeIndex, shapes_of


@pytest.mark.parametrize(
    ("pattern", "keywords"),
    [
        ("out of memory", "memory+out+of"),
        (r"error \d+: (?:full|empty)", "empty+error|error+full"),
        (r"[Cc]ouldn't connect", "connect+couldn+t"),
        (r"sm_\d+ is not", "not+is+sm"),
        (r"too long\w* a word", "word+too+a"),
        (r"maybe (?:this )?here", "maybe+here"),
    ],
)
def test_whole_words_of_each_alternative_are_taken(pattern: str, keywords: str) -> None:
    assert keywords_of(pattern) == keywords


def test_an_alternative_without_a_whole_word_is_refused() -> None:
    with pytest.raises(ValueError, match="no whole word"):
        keywords_of(r"memory|\w+")


def test_each_signature_s_own_words_are_among_those_that_are_searched_for() -> None:
    index = ShapeIndex(Keywords(CATALOGUE, ()))
    for signature in CATALOGUE:
        for group in signature.keywords.split("|"):
            shape = b" ".join(word.encode() for word in group.split("+"))
            if shape.strip():
                index.learn({shape})
                assert signature.shape or signature in index.kinds[shape].candidates


@pytest.mark.parametrize("log", [noise(3000), *(made_log(name, 300) for name in DIALECTS)])
def test_ordinary_lines_are_passed_over_by_their_words(log: bytes) -> None:
    """A signature whose words stand in every log makes reading many times as slow."""
    index = ShapeIndex(Keywords(CATALOGUE, ()))
    shapes = shapes_of(log)
    index.learn(set(shapes))
    read = Counter(one.name for shape in shapes for one in index.kinds[shape].candidates)
    assert {name: times for name, times in read.items() if times > len(shapes) / 50} == {}


def test_lines_that_differ_in_addresses_and_checksums_are_judged_once() -> None:
    """What a row costs a log of ever new lines: nothing for each line, however many rows."""
    index = ShapeIndex(Keywords(CATALOGUE, ()))
    index.learn(set(shapes_of(noise(12_000))))
    assert len(index.kinds) > 4_000
    assert len(index.verdicts) < 200


def test_long_lines_are_forgotten_and_the_others_kept() -> None:
    index = ShapeIndex(Keywords(CATALOGUE, ()))
    short = {f"{number:b}".replace("0", "a").replace("1", "b").encode() for number in range(10_001)}
    long = b"cuda out of memory " * 40
    index.learn(short | {long})
    assert long in index.kinds and long in index.read_shapes
    index.trim()
    assert set(index.kinds) == short and index.read_shapes == set()
