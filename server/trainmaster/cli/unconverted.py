"""Commands that take text as it was typed, without Pydantic.

Typer converts every value by Pydantic, text to text and nothing to nothing too; to import that
takes longer than all else that `trainmaster status RUN` does. What has to be converted or refused
still goes Typer's way.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

Parameter = TyperArgument | TyperOption


class Command(TyperCommand):
    """A command that converts only what has to be."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and options, `--help` among them."""
        return [_unconverted(parameter) for parameter in super().get_params(ctx)]


class Group(TyperGroup):
    """A group of commands that converts only what has to be."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, `--help` among them."""
        return [_unconverted(parameter) for parameter in super().get_params(ctx)]


def _unconverted(parameter: Any) -> Any:
    """The same, which takes what needs no conversion as it is."""
    convert = parameter.process_value

    def process_value(context: Any, value: Any) -> Any:
        if _is_converted(parameter, value):
            return convert(context, value)
        called = parameter.callback
        return value if called is None else called(context, parameter, value)

    if "process_value" not in vars(parameter):
        vars(parameter)["process_value"] = process_value
    return parameter


def _is_converted(parameter: Parameter, value: Any) -> bool:
    """Whether Typer has to convert or refuse it: not what was not given, nor what has its type
    already, as text and flags have."""
    declared = parameter.type_descriptor
    if declared.parameter_info.parser is not None:
        return True
    if parameter.required and parameter.value_is_missing(value):
        return True
    if parameter.multiple or parameter.nargs == -1:
        is_text = declared.annotation == list[str] and all(
            type(item) is str for item in value or ()
        )
        return bool(value) and not is_text
    return not (value is None or value is parameter.default or type(value) is declared.annotation)
