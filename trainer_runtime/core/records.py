"""Dataclasses whose methods are compiled when they are worth it.

The standard library compiles six methods for each class while its module is imported, most of which
a short process never calls: 0.35 ms a class, a quarter of what `trainmaster status` took. Here
`__init__` is compiled after a few instances, which cost 10 us each; the others are shared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_BEFORE_COMPILED = 8

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None,
        /,
        *,
        frozen: bool = False,
        slots: bool = False,
        eq: bool = True,
        kw_only: bool = False,
    ) -> Any:
        """As `dataclasses.dataclass` with these options, for a class without parents."""
        if cls is None:
            return lambda found: dataclass(
                found, frozen=frozen, slots=slots, eq=eq, kw_only=kw_only
            )
        own = frozenset(vars(cls))
        cls.__doc__ = cls.__doc__ or cls.__name__  # else a signature is worked out for it
        made = dataclasses.dataclass(
            init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
        )(cls)
        for name, method in _methods(made, frozen=frozen, slots=slots, eq=eq).items():
            if name not in own:
                setattr(made, name, method)
        return made


def _methods(made: type, *, frozen: bool, slots: bool, eq: bool) -> dict[str, Any]:
    methods: dict[str, Any] = {"__init__": _first_init(made, frozen), "__repr__": _repr}
    if eq:
        values = _values_of(made)
        methods["__eq__"] = _equality(values)
        methods["__hash__"] = _hash_of(values) if frozen else None
    if frozen:
        methods |= {"__setattr__": _refuse_setting, "__delattr__": _refuse_deleting}
        if slots:
            methods |= {"__getstate__": _state, "__setstate__": _restore}
    return methods


def _first_init(made: Any, frozen: bool) -> Callable[..., None]:
    """An `__init__` that puts the compiled one in its own place: after a few calls, and where it
    does not understand one.
    """
    calls = 0

    def first(self: Any, /, *args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        values = _values_given(made, args, kwargs) if calls <= _BEFORE_COMPILED else None
        if values is None:
            made.__init__ = compiled = _compiled_init(made, frozen)
            compiled(self, *args, **kwargs)
            return
        for name, value in values.items():
            if frozen:
                object.__setattr__(self, name, value)
            else:
                setattr(self, name, value)
        if hasattr(made, "__post_init__"):
            self.__post_init__()

    return first


def _values_given(
    made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """All fields' values, in their order; None for what the compiled one has to do or refuse."""
    fields = dataclasses.fields(made)
    positional = [field.name for field in fields if field.init and not field.kw_only]
    given = dict(zip(positional, args, strict=False))
    if len(given) < len(args) or not given.keys().isdisjoint(kwargs):
        return None
    given |= kwargs
    if not given.keys() <= {field.name for field in fields if field.init}:
        return None
    values = {}
    for field in fields:
        if field.name in given:
            values[field.name] = given[field.name]
        elif field.default is not dataclasses.MISSING:
            values[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            values[field.name] = field.default_factory()
        else:
            return None
    return values


def _compiled_init(made: Any, frozen: bool) -> Callable[..., None]:
    fields = dataclasses.fields(made)
    names: dict[str, Any] = {"_record_set": object.__setattr__, "_record_not_given": object()}
    taken = [field for field in fields if field.init]
    positional = [_parameter(field, names) for field in taken if not field.kw_only]
    by_name = [_parameter(field, names) for field in taken if field.kw_only]
    parameters = ", ".join(["self", *positional, *(["*", *by_name] if by_name else [])])
    body = [_assignment(field, names, frozen) for field in fields]
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    lines = "\n    ".join([f"def __init__({parameters}):", *(body or ["pass"])])
    exec(lines, names)
    compiled: Callable[..., None] = names["__init__"]
    compiled.__qualname__ = f"{made.__qualname__}.__init__"
    return compiled


def _parameter(field: dataclasses.Field[Any], names: dict[str, Any]) -> str:
    """The field as a parameter; its default is put into `names`."""
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.name}=_record_not_given"
    if field.default is dataclasses.MISSING:
        return field.name
    names[f"_default_{field.name}"] = field.default
    return f"{field.name}=_default_{field.name}"


def _assignment(field: dataclasses.Field[Any], names: dict[str, Any], frozen: bool) -> str:
    name = value = field.name
    if field.default_factory is not dataclasses.MISSING:
        names[f"_factory_{name}"] = field.default_factory
        made = f"_factory_{name}()"
        value = f"{made} if {name} is _record_not_given else {name}" if field.init else made
    elif not field.init:
        if field.default is dataclasses.MISSING:
            return "pass"  # set after the others
        names[f"_default_{name}"] = field.default
        value = f"_default_{name}"
    return f"_record_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}"


def _values_of(made: Any) -> Callable[[Any], Any]:
    """What reads the values that are compared, as one C call once it was called."""
    reading: list[Callable[[Any], Any]] = []

    def values(one: Any) -> Any:
        if not reading:
            names = [field.name for field in dataclasses.fields(made) if field.compare]
            reading.append(_reading(names))
        return reading[0](one)

    return values


def _reading(names: list[str]) -> Callable[[Any], Any]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


def _equality(values: Callable[[Any], Any]) -> Callable[[object, object], Any]:
    def equals(self: object, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return equals


def _hash_of(values: Callable[[Any], Any]) -> Callable[[object], int]:
    return lambda self: hash(values(self))


def _repr(self: Any) -> str:
    shown = (
        f"{field.name}={getattr(self, field.name)!r}"
        for field in dataclasses.fields(self)
        if field.repr
    )
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_setting(self: object, name: str, _: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
