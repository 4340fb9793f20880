"""Values as KFP converts them: JSON and text of Go, checks of types, properties of MLMD."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from google.protobuf import json_format, struct_pb2
from kfp.pipeline_spec import pipeline_spec_pb2

MISSING: Any = object()
"""What Go's maps give for an absent key: a nil Value, which is not a null."""

TYPES: dict[str, type] = {
    "STRING": str,
    "NUMBER_INTEGER": float,
    "NUMBER_DOUBLE": float,
    "BOOLEAN": bool,
    "LIST": list,
    "STRUCT": dict,
}
_NAMES = {str: "string", float: "number", bool: "bool", list: "list", dict: "struct"}


class StepError(Exception):
    """KFP fails the task; the message is near KFP's own."""


def normal(value: Any) -> Any:
    """Pass `value` through a protobuf Value, which makes every number a float."""
    return json_format.MessageToDict(json_format.ParseDict(value, struct_pb2.Value()))


def executor_input_message(inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """Pass the executor input through its message, which refuses what does not belong there."""
    both = {"inputs": inputs, "outputs": outputs}
    message = json_format.ParseDict(both, pipeline_spec_pb2.ExecutorInput())
    result: dict[str, Any] = json_format.MessageToDict(message)
    return result


def read_executor_output(file: Path, path: str) -> dict[str, Any]:
    """Parse the file that the step wrote to `path`, as strictly as protojson."""
    try:
        text = file.read_text("utf-8")
        # Python's parser takes NaN, which is no JSON to Go.
        json.loads(text, parse_constant=_refuse)
        message = json_format.Parse(text, pipeline_spec_pb2.ExecutorOutput())
    except (ValueError, json_format.ParseError) as error:
        raise StepError(f'failed to unmarshall ExecutorOutput in file "{path}": {error}') from error
    result: dict[str, Any] = json_format.MessageToDict(message)
    return result


def _refuse(token: str) -> None:
    raise ValueError(f"invalid value {token}")


def whole(value: Any) -> Any:
    """Make integers of the floats without a fraction: Go writes the double 5 as 5, not as 5.0."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return value


def go_json(value: Any) -> str:
    """Write `value` as Go's encoding/json does, which escapes what HTML gives a meaning to."""
    text = json.dumps(whole(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def launcher_text(value: Any) -> str:
    """Write `value` as PbValueToText and the launcher's placeholders do (metadata/converter.go)."""
    if value is MISSING or value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = format(Decimal(repr(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return value if isinstance(value, str) else go_json(value)


def driver_text(value: Any) -> str:
    """Write `value` as the driver's placeholders do: %g, so 1234567.5 is 1.2345675e+06."""
    if not isinstance(value, float) or (value.is_integer() and abs(value) < 2**63):
        return launcher_text(value)
    exponent = Decimal(repr(value)).adjusted()
    if -4 <= exponent < 6:
        return launcher_text(value)
    digits = "".join(map(str, Decimal(repr(value)).as_tuple().digits)).rstrip("0")
    mantissa = digits[0] + ("." + digits[1:] if digits[1:] else "")
    return f"{'-' if value < 0 else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"


def checked_input(name: str, kind: str, value: Any) -> Any:
    """Check and convert the value of an input parameter (driver/resolve.go, resolveInputs)."""
    if kind == "STRING":
        # Even MISSING: a default of a parameter that is not optional is lost to "".
        return value if isinstance(value, str) else launcher_text(value)
    if value is MISSING:
        raise StepError(f"parameter {name} has unknown protobuf.Value type: <nil>")
    if value is None:
        raise StepError(f'got null for input parameter "{name}"')
    if type(value) is not TYPES.get(kind):
        actual = _NAMES[type(value)]
        raise StepError(f'input parameter "{name}" type mismatch: expect {kind}, got {actual}')
    return value


def parsed_output(text: str, kind: str) -> Any:
    """Parse the file of an output parameter (metadata/converter.go, TextToPbValue)."""
    try:
        return _PARSERS[kind](text)
    except (KeyError, ValueError) as error:
        quoted = json.dumps(text)
        raise StepError(f'TextToPbValue(text={quoted}, type="{kind}") failed: {error!r}') from error


def _integer(text: str) -> float:
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip()) or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"strconv.ParseInt: parsing {text!r}: invalid syntax")
    return float(int(text))


def _double(text: str) -> float:
    value = float(text.strip())
    if "_" in text or (math.isinf(value) and text.strip()[-1].isdigit()):
        raise ValueError(f"strconv.ParseFloat: parsing {text!r}")
    return value


def _boolean(text: str) -> bool:
    word = text.strip()
    if word in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if word in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise ValueError(f"strconv.ParseBool: parsing {text!r}: invalid syntax")


def _json_of(kind: type) -> Any:
    def parse(text: str) -> Any:
        value = normal(json.loads(text, parse_constant=_refuse))
        if not isinstance(value, kind):
            raise ValueError("unexpected type")
        return value

    return parse


_PARSERS: dict[str, Any] = {
    "STRING": str,
    "NUMBER_INTEGER": _integer,
    "NUMBER_DOUBLE": _double,
    "BOOLEAN": _boolean,
    "LIST": _json_of(list),
    "STRUCT": _json_of(dict),
}


def custom_property(value: Any) -> Any:
    """Convert a value of metadata for MLMD (metadata/converter.go, StructValueToMLMDValue)."""
    if value is None:
        raise StepError(
            "failed to convert RuntimeArtifact to MLMD artifact: "
            "unknown/unsupported value type *structpb.Value_NullValue"
        )
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list):
        return {"list": value}
    return {"struct": value} if isinstance(value, dict) else value
