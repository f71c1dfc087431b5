"""Posts one message, in a separate process: `python -m trainer_runtime alert`.

Standard input holds `{"url", "body", "id"}`: a URL is a secret, so it is not on a command line. The
answer is `{"sent": true}` or `{"sent": false, "reason", "wait_s"}`, with the `status` of the
receiver and what it `said`. The reason is one of a closed list; `said` is untrusted text.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import ssl
import sys
import urllib.error
from typing import Any

from trainer_runtime.core.alerts.post_answer import LONGEST_S
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.protocol.text import shown
from trainer_runtime.host.files.http_request import NotWebError, opened

TIMEOUT_S = 10.0
_MOST_WAIT_S = 3600.0
_MOST_SAID = 200


def main() -> int:
    """Post the message on standard input; returns 0 also when it was not accepted."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST_S)
    asked = decode_fields(sys.stdin.buffer.read(), "the message")
    try:
        answer = post(asked.text("url"), asked.open_map("body"), asked.text("id"))
    except TimeoutError:
        answer = _failed(f"no answer within {LONGEST_S} s")
    print(json.dumps(answer))
    return 0


def post(url: str, body: object, name: str) -> dict[str, Any]:
    """One POST of JSON, without redirects: they would turn it into a GET, somewhere else.

    Raises:
        TimeoutError: the alarm of `main`.
    """
    headers = {"Content-Type": "application/json", "Idempotency-Key": name}
    try:
        sent = json.dumps(body).encode()
        with opened("POST", url, headers, timeout_s=TIMEOUT_S, body=sent) as answer:
            return {"sent": True, "status": answer.status, "said": _answer_text(answer)}
    except NotWebError:
        return _failed("the address is not of http or https")
    except urllib.error.HTTPError as error:
        with error:
            asked_s = _wait_s(error.headers.get("Retry-After"))
            failure = _failed(f"the receiver answered {error.code}", asked_s)
            return {**failure, "status": error.code, "said": _answer_text(error)}
    except urllib.error.URLError as error:
        return _failed(_reason(error.reason))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return _failed(_reason(error))


def _failed(reason: str, wait_s: float = 0.0) -> dict[str, Any]:
    return {"sent": False, "reason": reason, "wait_s": wait_s}


def _reason(error: object) -> str:
    """Why there was no answer, from a fixed list: an exception's text may hold the address."""
    for kind, words in _REASONS:
        if isinstance(error, kind):
            return words
    return "the connection broke"


_REASONS: tuple[tuple[type, str], ...] = (
    (TimeoutError, f"no answer within {TIMEOUT_S:.0f} s"),
    (socket.gaierror, "its name is not known"),
    (ssl.SSLError, "its certificate or TLS is not accepted"),
    (ConnectionRefusedError, "the connection was refused"),
    (ConnectionError, "the connection broke"),
    (http.client.HTTPException, "the answer is not valid HTTP"),
    (ValueError, "the address can't be used"),
)


def _wait_s(header: str | None) -> float:
    """The seconds of `Retry-After`; its other form, a date, is passed over."""
    if header is None or not header.isascii() or not header.isdigit():
        return 0.0
    return min(float(header[:9]), _MOST_WAIT_S)


def _answer_text(answer: Any) -> str:
    try:
        return shown(answer.read(_MOST_SAID).replace(b"\n", b" "))[:_MOST_SAID]
    except (OSError, http.client.HTTPException):
        return ""


def _too_long(*_: object) -> None:
    raise TimeoutError
