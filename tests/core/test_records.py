"""Records behave as the standard library's dataclasses do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar

import pytest

from trainer_runtime.core.records import dataclass


class Fields:
    """Not a record itself: the fields of those below."""

    step: int
    loss: float = 1.5
    tags: list[str] = field(default_factory=list)
    secret: str = field(default="s", repr=False, compare=False)
    twice: int = field(init=False, default=0)
    kinds: ClassVar[int] = 3


def _record(decorate: Any, **options: Any) -> Any:
    body = {name: copy.copy(value) for name, value in vars(Fields).items() if name[:2] != "__"}
    body |= {"__annotations__": Fields.__annotations__, "__module__": __name__}
    return decorate(**options)(type("Record", (), body))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("slots", [False, True])
def test_records_are_made_compared_and_shown_as_dataclasses_are(frozen: bool, slots: bool) -> None:
    ours = _record(dataclass, frozen=frozen, slots=slots)
    theirs = _record(dataclasses.dataclass, frozen=frozen, slots=slots)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((1,), {}),
        ((1, 2.0, ["a"]), {"secret": "t"}),
        ((1,), {"loss": 2.0}),
    ]
    for args, kwargs in calls * 5:  # the first are made without a compiled `__init__`
        one, other = ours(*args, **kwargs), theirs(*args, **kwargs)
        assert repr(one) == repr(other)
        assert dataclasses.asdict(one) == dataclasses.asdict(other)
        assert one == ours(*args, **{**kwargs, "secret": "u"})
        assert one != ours(7)
        assert dataclasses.replace(one, step=9).step == 9
        assert copy.copy(one) == one
        assert hasattr(one, "__dict__") == (not slots)
    refused_calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((1, 2, ["a"], "s", 5), {}),
        ((1,), {"nothing": 1}),
        ((1,), {"step": 2}),
        ((1,), {"twice": 2}),
    ]
    for args, kwargs in refused_calls:
        ours = _record(dataclass, frozen=frozen, slots=slots)
        with pytest.raises(TypeError) as refused:
            ours(*args, **kwargs)
        with pytest.raises(TypeError) as expected:
            theirs(*args, **kwargs)
        assert str(refused.value) == str(expected.value)


def _described(record: Any) -> list[tuple[Any, ...]]:
    shown = ("name", "type", "default", "default_factory", "init", "repr", "compare", "kw_only")
    return [tuple(getattr(one, name) for name in shown) for one in dataclasses.fields(record)]


@pytest.mark.parametrize("kw_only", [False, True])
@pytest.mark.parametrize("slots", [False, True])
def test_the_standard_library_describes_a_record_once_it_is_asked_about_it(
    kw_only: bool, slots: bool
) -> None:
    ours = _record(dataclass, slots=slots, kw_only=kw_only)
    theirs = _record(dataclasses.dataclass, slots=slots, kw_only=kw_only)
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.kinds == theirs.kinds == 3
    assert not isinstance(vars(ours)["__dataclass_fields__"], dict)
    assert _described(ours) == _described(theirs)
    assert isinstance(vars(ours)["__dataclass_fields__"], dict)
    assert dataclasses.is_dataclass(ours)


@dataclass(frozen=True, slots=True)
class Point:
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class Single:
    value: float


@dataclass(frozen=True)
class Kept:
    step: int

    def __post_init__(self) -> None:
        if self.step < 0:
            raise ValueError("negative")

    @cached_property
    def double(self) -> int:
        return self.step * 2


@dataclass(slots=True, eq=False)
class Known:
    step: int


def test_a_frozen_record_refuses_changes_and_can_be_hashed_and_pickled() -> None:
    point = Point(1, 2.0)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'step'"):
        point.step = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'step'"):
        del point.step
    assert {point: 1}[Point(1, 2.0)] == 1
    assert hash(point) == hash((1, 2.0))
    assert pickle.loads(pickle.dumps(point)) == point
    nan = float("nan")
    assert Single(nan) == Single(nan)  # compared as tuples are: the same object is equal


def test_a_record_without_slots_is_checked_after_its_making_and_keeps_what_it_worked_out() -> None:
    assert Kept(2).double == 4
    for _ in range(2):
        with pytest.raises(ValueError, match="negative"):
            Kept(-1)


def test_a_record_that_is_not_compared_is_equal_to_itself_alone() -> None:
    known = Known(1)
    assert known in [known]
    assert known != Known(1)
    known.step = 2
    assert known.step == 2


def test_a_changeable_record_has_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(_record(dataclass, slots=True)(1))
