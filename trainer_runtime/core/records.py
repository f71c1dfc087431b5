"""Dataclasses whose methods are compiled at their first use.

The standard library compiles six methods for each class while its module is imported, most of which
a short process never calls: 0.35 ms a class, a quarter of what `trainmaster status` took. Here
`__init__` is the standard library's own, made when the first instance is; the others are shared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

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
    """An `__init__` that puts the compiled one in its own place."""

    def first(self: Any, /, *args: Any, **kwargs: Any) -> None:
        made.__init__ = compiled = _compiled_init(made, frozen)
        compiled(self, *args, **kwargs)

    return first


def _compiled_init(made: Any, frozen: bool) -> Callable[..., None]:
    fields = [(one.name, Any, _declared(one)) for one in dataclasses.fields(made)]
    body: dict[str, Any] = {"__doc__": made.__doc__}
    if hasattr(made, "__post_init__"):
        body["__post_init__"] = None  # that there is one; it is the record's that is called
    template: Any = dataclasses.make_dataclass(
        made.__name__, fields, namespace=body, frozen=frozen, repr=False, eq=False
    )
    compiled: Callable[..., None] = template.__init__
    return compiled


def _declared(field: dataclasses.Field[Any]) -> Any:
    """The same field, for another class, which has no slots: what is not an argument is set by a
    factory, since a default would stay with that class."""
    default: dict[str, Any] = {}
    if field.default_factory is not dataclasses.MISSING:
        default["default_factory"] = field.default_factory
    elif field.default is not dataclasses.MISSING and not field.init:
        default["default_factory"] = lambda: field.default
    elif field.default is not dataclasses.MISSING:
        default["default"] = field.default
    return dataclasses.field(init=field.init, kw_only=field.kw_only, **default)


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
