"""Which lines are learnt, so that others like them are read in bulk."""

from __future__ import annotations

import re

import pytest

from trainer_runtime.core.diagnosis.parse.dialects import HEADED
from trainer_runtime.core.diagnosis.parse.line import read_line
from trainer_runtime.core.diagnosis.parse.template_learning import learn

_QUANTIFIER = re.compile(rb"\{\d*,?\d*\}")


@pytest.mark.parametrize("step", [*range(10), 22, 777])
def test_a_line_is_learnt_whatever_digits_its_numbers_have(step: int) -> None:
    line = b"iter %d: loss nan, time 2180.16ms, mfu -100.00%%" % step
    template = learn(line, read_line(line)[0], read_line)
    assert template is not None
    assert template.marks["step"].index == 0


def test_a_line_in_which_a_number_ends_a_sentence_is_learnt_with_its_point() -> None:
    line = b"INFO - 0:10:30 - Finish training epoch 3. loss: 0.0439"
    template = learn(line, read_line(line)[0], read_line)
    assert template is not None
    assert template.reads_all(line.replace(b"3. loss: 0.0439", b"7. loss: 12.5"), 1)
    assert not template.reads_all(line.replace(b"3.", b"3"), 1)


def test_a_line_that_ends_a_training_is_learnt_with_its_event() -> None:
    line = b"{'train_runtime': '1.3', 'train_loss': '6.93', 'epoch': '0.625'}"
    reading = read_line(line)[0]
    assert reading.events
    assert learn(line, reading, read_line) is not None


def test_a_line_whose_steps_of_an_epoch_are_a_fact_too_is_learnt() -> None:
    line = b"Epoch:[1/3](50/56608), loss: 2.4945, lr: 0.00001000, epoch_time: 116.0min"
    reading = read_line(line)[0]
    template = learn(line, reading, read_line)
    assert reading.facts["total_steps"] == 3 * 56608
    assert template is not None
    assert template.marks["lap_steps"].value == 56608
    assert template.shape.fullmatch(line.translate(bytes.maketrans(b"123456789", b"0" * 9)))
    assert b"56608" in [text for _, text in template.fixed]


@pytest.mark.parametrize("dialect", HEADED, ids=lambda dialect: dialect.name)
def test_where_a_dialect_begins_depends_on_no_particular_digit(dialect: object) -> None:
    """What was found in one line counts for all of its shape."""
    head, signs = dialect.head, dialect.signs  # type: ignore[attr-defined]
    assert not re.search(rb"\d", _QUANTIFIER.sub(b"", head) + b"".join(signs))
