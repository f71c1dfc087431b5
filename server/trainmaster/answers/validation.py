"""Answers as Pydantic sees them: where one is read from JSON, and for the schemas of tools."""

from __future__ import annotations

from typing import Any

from pydantic import GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from trainmaster.answers.fields import REQUIRED

_adapters: dict[type[Any], TypeAdapter[Any]] = {}


def adapter_of(kind: type[Any]) -> TypeAdapter[Any]:
    """What validates answers of this type."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def schema_of(kind: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
    """A schema that takes an answer as it is, and makes one of its fields by their names in
    JSON."""
    fields = {
        name: core_schema.typed_dict_field(
            handler.generate_schema(field.annotation),
            required=field.default is REQUIRED,
            validation_alias=field.alias,
        )
        for name, field in kind.model_fields.items()
    }

    def taken(value: Any, validate: core_schema.ValidatorFunctionWrapHandler) -> Any:
        return value if isinstance(value, kind) else kind(**validate(value))

    return core_schema.no_info_wrap_validator_function(
        taken,
        core_schema.typed_dict_schema(fields, cls_name=kind.__name__, extra_behavior="forbid"),
        serialization=core_schema.plain_serializer_function_ser_schema(
            lambda answer, info: answer.model_dump(context=info.context), info_arg=True
        ),
    )
