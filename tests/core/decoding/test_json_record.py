"""Dataclasses that JSON is read as, by their annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import pytest

from trainer_runtime.core.decoding import DecodingError, Fields, JsonRecord


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Point(JsonRecord):
    x: int
    t: float = 0.0


@dataclass(frozen=True, slots=True)
class Drawing(JsonRecord):
    name: str
    colour: Colour
    origin: Point
    size: float | None
    points: tuple[Point, ...]
    words: tuple[str, ...]
    weights: Mapping[str, int]
    source: str = field(default="here", metadata={"key": "from"})


_JSON = {
    "name": "n",
    "colour": "red",
    "origin": {"x": 1, "t": 2.0},
    "size": None,
    "points": [{"x": 3, "t": 4.0}],
    "words": ["a", "b"],
    "weights": {"a": 1},
    "from": "there",
}


def test_a_record_is_read_and_written_under_the_names_that_it_has_in_json():
    drawing = Drawing.of(Fields(_JSON))

    assert drawing.origin == Point(1, 2.0)
    assert drawing.source == "there"
    assert drawing.to_dict() == _JSON


def test_what_is_absent_is_the_default_none_or_empty():
    drawing = Drawing.of(Fields({"name": "n", "colour": "red", "origin": {"x": 1}, "new": 1}))

    assert (drawing.size, drawing.points, drawing.weights) == (None, (), {})
    assert (drawing.source, drawing.origin.t) == ("here", 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": None}, "file: name is missing"),
        ({"name": 1}, "file: name is not a string"),
        ({"origin": {}}, "file: origin.x is missing"),
        ({"origin": {"x": 1, "t": -1}}, "file: origin.t is not a time between 1970 and 9999"),
        ({"points": [{"x": "1"}]}, "file: points[0].x is not an integer"),
        ({"weights": {"a": "1"}}, "file: weights.a is not an integer"),
    ],
)
def test_another_type_is_refused_by_the_name_of_its_field(change, message):
    with pytest.raises(DecodingError) as refused:
        Drawing.of(Fields({**_JSON, **change}, "file"))
    assert str(refused.value) == message
