"""Checks requests and replies against a provider's OpenAPI description.

The folder that `TRAINMASTER_API_DESCRIPTIONS` names may hold `runpod_openapi.json`
(api-reference-v2/openapi.json of github.com/runpod/docs), `vast_openapi.yaml`
(api-reference/openapi.yaml of github.com/vast-ai/docs) and `lambda_openapi.json`
(openapi/_original/lambda-labs-openapi.json of github.com/api-evangelist/lambda-labs). Without a
file its provider is not checked.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

VARIABLE = "TRAINMASTER_API_DESCRIPTIONS"
_EVERYWHERE = (401, 429)  # not in every description, but always possible


class Description:
    """`prefix`: of all paths in the description."""

    def __init__(self, document: Mapping[str, Any], prefix: str) -> None:
        self._document = document
        self._prefix = prefix
        paths = sorted(document["paths"], key=lambda path: path.count("{"))
        self._paths = [(_pattern(path), document["paths"][path]) for path in paths]

    def of_request(self, method: str, path: str, query: Mapping[str, str], body: Any) -> list[str]:
        """Disagreements of a request."""
        operation = self._operation(method, path)
        if operation is None:
            return [f"{method} {path} is not described"]
        known = {one["name"] for one in map(self._resolved, operation.get("parameters", []))}
        problems = [f"{method} {path}: no parameter {name}" for name in query if name not in known]
        described = self._resolved(operation.get("requestBody", {}))
        if not described:
            return problems + ([f"{method} {path} takes no body"] if body is not None else [])
        return problems + self._differs(described, body, f"{method} {path}")

    def of_reply(self, method: str, path: str, status: int, body: Any) -> list[str]:
        """Disagreements of a reply."""
        operation = self._operation(method, path)
        if operation is None:
            return []
        replies = {str(code): reply for code, reply in operation["responses"].items()}
        described = replies.get(str(status), replies.get("default"))
        if described is None and status in _EVERYWHERE:
            return []
        if described is None:
            return [f"{method} {path}: status {status} is not described"]
        return self._differs(self._resolved(described), body, f"{status} of {method} {path}")

    def _operation(self, method: str, path: str) -> Any:
        for pattern, operations in self._paths:
            if pattern.fullmatch(self._prefix + path) and method.lower() in operations:
                return operations[method.lower()]
        return None

    def _differs(self, described: Any, body: Any, where: str) -> list[str]:
        from jsonschema import Draft202012Validator

        contents = described.get("content")
        if not contents:
            return [] if body is None else [f"{where}: a body"]
        schema = next(iter(contents.values())).get("schema", {})
        whole = {**schema, "components": self._document["components"]}
        errors = Draft202012Validator(whole).iter_errors(body)
        return [f"{where}: {error.json_path} {error.message}"[:400] for error in errors]

    def _resolved(self, part: Any) -> Any:
        while "$ref" in part:
            found: Any = self._document
            for name in part["$ref"].removeprefix("#/").split("/"):
                found = found[name]
            part = found
        return part


@cache
def description(file: str, prefix: str) -> Description | None:
    """A description from the folder; None if it is missing."""
    folder = os.environ.get(VARIABLE)
    if not folder or not (path := Path(folder, file)).exists():
        return None
    content = path.read_bytes()
    quick = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document = json.loads(content) if path.suffix == ".json" else yaml.load(content, quick)
    return Description(document, prefix)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{[^/]+?\\\}", "[^/]+", re.escape(path)).rstrip("/") + "/?")
