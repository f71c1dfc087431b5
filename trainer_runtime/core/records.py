"""Dataclasses whose methods are compiled, and whose fields are described, when it is worth it.

The standard library compiles six methods for each class while its module is imported, and reads
every annotation; most of it is for nothing in a short process: 0.35 ms a class, a quarter of what
`trainmaster status` took. Here `__init__` is compiled after a few instances, which cost 10 us
each, the others are shared, and the standard library describes the fields (`dataclasses.fields`,
`replace`, `asdict`) of a class that it is asked about.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_BEFORE_COMPILED = 8
_NO_FIELDS = ("ClassVar", "typing.ClassVar")

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
        written = _WrittenFields(cls, kw_only)
        methods = _methods(written, frozen=frozen, slots=slots, eq=eq)
        written.made = _slotted(cls, written, methods) if slots else _open(cls, written, methods)
        return written.made


class _WrittenFields:
    """The fields of a class as its body has them.

    `defaults`: what stands behind the names, as it stands there. As `__dataclass_fields__` of the
    class it is what the standard library makes of them, from when that is first asked for.
    """

    __slots__ = ("_module", "annotations", "defaults", "kw_only", "made", "names")

    def __init__(self, cls: type, kw_only: bool) -> None:
        body = vars(cls)
        self._module = cls.__module__
        self.annotations: dict[str, Any] = cls.__annotations__
        self.names = [
            name
            for name, annotated in self.annotations.items()
            if not str(annotated).startswith(_NO_FIELDS)
        ]
        self.defaults = {name: body[name] for name in self.names if name in body}
        self.kw_only = kw_only
        self.made: Any = None

    def __get__(self, _: object, made: Any) -> dict[str, dataclasses.Field[Any]]:
        body = {
            **self.defaults,
            "__annotations__": {name: self.annotations[name] for name in self.names},
            "__doc__": made.__doc__ or made.__name__,  # else a signature is worked out for it
            "__module__": self._module,
        }
        describe = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=self.kw_only)
        described: Any = describe(type(made.__name__, (), body))
        fields: dict[str, dataclasses.Field[Any]] = described.__dataclass_fields__
        self.made.__dataclass_fields__ = fields
        return fields

    def default(self, name: str) -> Any:
        """The value of a field that is not given; `MISSING` where it has to be."""
        default = self.defaults.get(name, dataclasses.MISSING)
        if not isinstance(default, dataclasses.Field):
            return default
        if default.default_factory is not dataclasses.MISSING:
            return default.default_factory()
        return default.default

    def those(self, option: str) -> list[str]:
        """The names of the fields whose `field(...)` does not deny them this."""
        return [name for name in self.names if self._option(name, option, True)]

    @property
    def positional(self) -> tuple[str, ...]:
        """The names of those that `__init__` takes by their position."""
        return tuple(name for name in self.those("init") if not self._is_by_name(name))

    def _is_by_name(self, name: str) -> bool:
        own = self._option(name, "kw_only", dataclasses.MISSING)
        return self.kw_only if own is dataclasses.MISSING else bool(own)

    def _option(self, name: str, option: str, otherwise: object) -> object:
        """What the `field(...)` of this name says; `otherwise` where none stands there."""
        default = self.defaults.get(name)
        return getattr(default, option) if isinstance(default, dataclasses.Field) else otherwise


def _slotted(cls: Any, written: _WrittenFields, methods: dict[str, Any]) -> Any:
    """The same class with a slot for each field."""
    left_out = {"__dict__", "__weakref__", *written.names}
    body = {name: value for name, value in vars(cls).items() if name not in left_out}
    made = type(cls)(
        cls.__name__, cls.__bases__, {**methods, **body, "__slots__": tuple(written.names)}
    )
    made.__qualname__ = cls.__qualname__
    return made


def _open(cls: Any, written: _WrittenFields, methods: dict[str, Any]) -> Any:
    """The class itself, its fields' defaults as attributes."""
    own = frozenset(vars(cls))
    for name, default in written.defaults.items():
        if isinstance(default, dataclasses.Field):
            if default.default is dataclasses.MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, default.default)
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


def _methods(written: _WrittenFields, *, frozen: bool, slots: bool, eq: bool) -> dict[str, Any]:
    methods: dict[str, Any] = {
        "__dataclass_fields__": written,
        "__match_args__": written.positional,
        "__init__": _first_init(written, frozen),
        "__repr__": _repr_of(written),
    }
    if eq:
        values = _values_of(written)
        methods["__eq__"] = _equality(values)
        methods["__hash__"] = _hash_of(values) if frozen else None
    if frozen:
        methods |= {"__setattr__": _refuse_setting, "__delattr__": _refuse_deleting}
        if slots:
            methods |= {"__getstate__": _state, "__setstate__": _restore}
    return methods


def _first_init(written: _WrittenFields, frozen: bool) -> Callable[..., None]:
    """An `__init__` that puts the compiled one in its own place: after a few calls, and where it
    does not understand one.
    """
    calls = 0

    def first(self: Any, /, *args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        values = _values_given(written, args, kwargs) if calls <= _BEFORE_COMPILED else None
        if values is None:
            written.made.__init__ = compiled = _compiled_init(written.made, frozen)
            compiled(self, *args, **kwargs)
            return
        for name, value in values.items():
            if frozen:
                object.__setattr__(self, name, value)
            else:
                setattr(self, name, value)
        if hasattr(written.made, "__post_init__"):
            self.__post_init__()

    return first


def _values_given(
    written: _WrittenFields, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """All fields' values, in their order; None for what the compiled one has to do or refuse."""
    given = dict(zip(written.positional, args, strict=False))
    if len(given) < len(args) or not given.keys().isdisjoint(kwargs):
        return None
    given |= kwargs
    if not given.keys() <= set(written.those("init")):
        return None
    values = {
        name: given[name] if name in given else written.default(name) for name in written.names
    }
    return None if any(value is dataclasses.MISSING for value in values.values()) else values


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


def _values_of(written: _WrittenFields) -> Callable[[Any], Any]:
    """What reads the values that are compared, as one C call once it was called."""
    reading: list[Callable[[Any], Any]] = []

    def values(one: Any) -> Any:
        if not reading:
            reading.append(_reading(written.those("compare")))
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


def _repr_of(written: _WrittenFields) -> Callable[[Any], str]:
    def shown(self: Any) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name in written.those("repr"))
        return f"{type(self).__qualname__}({', '.join(values)})"

    return shown


def _refuse_setting(self: object, name: str, _: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
