"""What is answered to a request that reaches no server: HTTP's status, and an error of JSON-RPC."""

from __future__ import annotations

import math
from collections.abc import Mapping

from starlette.responses import JSONResponse, Response

from trainmaster.errors.errors import TrainmasterError

# Of JSON-RPC: the first of those that a server may define.
_SERVER_ERROR = -32000


class Refusal(Exception):
    """Ends a request. Clients of MCP show the message of the JSON-RPC error, so it holds it all."""

    def __init__(
        self, status: int, error: TrainmasterError, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """The answer; without an id, since the request is not read."""
        error = {"code": _SERVER_ERROR, "message": str(self.error), "data": self.error.to_dict()}
        return JSONResponse(
            {"jsonrpc": "2.0", "id": None, "error": error}, self.status, self.headers
        )


def retry_after(seconds: float) -> dict[str, str]:
    """The header, in whole seconds."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}
