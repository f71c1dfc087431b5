"""Words from outside: logs, specs, names and requirement lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fuzz.hostile import ODD, examples, texts

from trainer_runtime.core.diagnosis.parse import LogParser
from trainer_runtime.core.environment.lock import parse_lock
from trainer_runtime.core.environment.requirements import name_of, requirement_lines, satisfied
from trainer_runtime.core.files.listing import is_meant, is_never_fetched
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.core.protocol.text import cleaned, shown
from trainmaster.errors.errors import TrainmasterError
from trainmaster.plan.spec.load import load_spec
from trainmaster.settings.yaml12 import dump_yaml, load_yaml

pytestmark = [pytest.mark.fuzz, pytest.mark.attack]

_LOG_WORDS = (
    "step: iter loss step= loss= {'loss': {\" [rank1]: nan inf 1e999 -1 007 3.25 , | % %| 5/20"
    " Epoch \r \x1b[32m epoch } ' \" : = it/s] trl: lr=[ time (ms) | 9" + "9" * 400
).split(" ")
_SPEC = """\
name: tiny
host: local
framework: nanogpt
model: {layers: 2, heads: 2, embedding: 32}
data: {sources: [{path: text.txt}]}
steps: 60
"""
_HIDDEN = [letter for letter in ODD if not letter.isascii() or letter < " "]
_HIDDEN.remove("\t")
_WORDS = st.sampled_from([*_SPEC.split(), "&a", "*a", "!!python/object:os.system", "? ", "- " * 50])


@examples(100)
@given(st.lists(st.one_of(st.sampled_from(_LOG_WORDS), st.text(ODD, max_size=8)), max_size=40))
def test_a_log_gives_steps_in_range_and_bounded_words(words: list[str]) -> None:
    parser = LogParser()
    log = " ".join(words).replace(" | ", "\n").encode("utf-8", "surrogatepass")
    for parsed in (parser.feed(log), parser.feed(log), parser.close()):
        assert all(0 <= point.step < 2**63 and len(point.key) < 200 for point in parsed)
        assert all(len(event.text) < 1000 for event in parsed.events)


@examples(150)
@given(st.one_of(st.binary(max_size=400), texts.map(lambda t: t.encode("utf-8", "surrogatepass"))))
def test_what_is_shown_of_a_line_holds_no_control_or_hidden_character(line: bytes) -> None:
    text = shown(line)
    assert not set(text) & set(_HIDDEN)
    assert cleaned(text) == cleaned(cleaned(text))


@examples(150)
@given(st.one_of(texts, st.lists(_WORDS, max_size=30).map(" ".join)))
def test_any_text_is_a_spec_or_an_error_by_the_contract(text: str) -> None:
    for read in (load_yaml, load_spec):
        try:
            read(f"{_SPEC}{text}")
        except TrainmasterError as error:
            assert error.code and len(str(error)) < 10_000


@examples(60)
@given(st.dictionaries(st.text(max_size=8), st.one_of(st.integers(), st.text(max_size=20))))
def test_what_is_dumped_is_loaded_alike(document: dict[str, object]) -> None:
    try:
        text = dump_yaml(document)
    except (TrainmasterError, UnicodeEncodeError):
        return
    try:
        assert load_yaml(text) == document
    except TrainmasterError:
        return


@examples(100)
@given(texts, st.text(ODD + "az*?[]/.", max_size=30))
def test_patterns_and_requirement_lines_are_read_in_any_form(text: str, pattern: str) -> None:
    is_meant(pattern, text)
    is_never_fetched(text)
    for line in requirement_lines(text):
        name_of(line)
        satisfied(line, {"torch": "2.13.0"})
    parse_lock(f"{text}\n{pattern}")
    try:
        parse_duration(text)
    except ValueError:
        return
