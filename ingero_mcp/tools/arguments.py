"""Arguments as models send them, made into what a tool declares; the only place that forgives.

Models send null, "null" or "" for what they do not want to set, "10" or 10.0 for 10, and misspell names.
What is clear is taken, what is not is refused in one sentence that shows a corrected argument.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ingero_mcp.errors import ConfigError
from ingero_mcp.tools.nearest import nearest, quoted

Schema = Mapping[str, Any]

_ARTICLE: Final = {"string": "a text", "integer": "an integer", "number": "a number", "boolean": "true or false"}
_LONGEST: Final = 100_000


class _ClientSchema(GenerateJsonSchema):
    """The subset that providers' strict modes take: no union with null, no null default, no titles."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default") is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def get_title_from_name(self, name: str) -> str:
        return ""


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a model as clients are shown it."""
    schema = model.model_json_schema(schema_generator=_ClientSchema)
    return {key: _untitled(value) for key, value in schema.items() if key not in ("title", "description")}


def take(sent: Mapping[str, object] | None, schema: Schema, example: Mapping[str, object]) -> dict[str, Any]:
    """The given arguments with the types of `schema`; what was not given is absent.

    ConfigError names the first argument that cannot be taken; `example` holds a good value for each parameter.
    """
    parameters: Mapping[str, Schema] = schema["properties"]
    given = {name: value for name, value in (sent or {}).items() if not _is_absent(value)}
    for name in given:
        if name not in parameters:
            near = nearest(name, parameters)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"unknown argument {quoted(name)}; accepted are {', '.join(parameters)}{hint}")
    for name in schema.get("required", ()):
        if name not in given:
            raise ConfigError(f"{name} is required; for example {_shown(name, example)}")
    return {name: _take_one(name, value, parameters[name], example) for name, value in given.items()}


def _take_one(name: str, value: object, parameter: Schema, example: Mapping[str, object]) -> object:
    kind = parameter["type"]
    taken: object
    if "enum" in parameter:
        taken = value.strip().lower() if isinstance(value, str) else None
        taken = taken if taken in parameter["enum"] else None
    elif kind == "string":
        taken = _as_text(value)
    elif kind == "boolean":
        taken = _as_truth(value)
    else:
        taken = _as_number(value, integral=kind == "integer")
    if taken is None or not _in_range(taken, parameter):
        wanted = f"{_wanted(parameter)}, not {quoted(value if isinstance(value, str) else json.dumps(value))}"
        raise ConfigError(f"{name} must be {wanted}; for example {_shown(name, example)}")
    return taken


def _is_absent(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in ("", "null"))


def _as_text(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or len(value) > _LONGEST:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: no database text can equal it
        return None
    return value


def _as_truth(value: object) -> bool | None:
    said = str(value).strip().lower() if isinstance(value, bool | int | str) else ""
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(said)


def _as_number(value: object, *, integral: bool) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > 40:
        return None
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number) > Decimal(2) ** 63:
        return None
    if not integral:
        return float(number)
    return int(number) if number == number.to_integral_value() else None


def _in_range(value: object, parameter: Schema) -> bool:
    if not isinstance(value, int | float):
        return True
    low, high = parameter.get("minimum"), parameter.get("maximum")
    return (low is None or value >= low) and (high is None or value <= high)


def _wanted(parameter: Schema) -> str:
    if "enum" in parameter:
        return "one of " + ", ".join(parameter["enum"])
    low, high = parameter.get("minimum"), parameter.get("maximum")
    bounds = f" from {low} to {high}" if high is not None else f" from {low} upward" if low is not None else ""
    return _ARTICLE[parameter["type"]] + bounds


def _shown(name: str, example: Mapping[str, object]) -> str:
    return json.dumps({name: example[name]})


def _untitled(schema: Any) -> Any:
    # A property may itself be called title, so only a text under that key is one of pydantic's.
    if isinstance(schema, dict):
        return {key: _untitled(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    return [_untitled(item) for item in schema] if isinstance(schema, list) else schema
