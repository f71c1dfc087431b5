"""Map exceptions of Kaggle's client to errors. Runs in the worker process."""

from __future__ import annotations

import os
from collections.abc import Iterator

from trainer_runtime.core.protocol.text import shown
from trainmaster.backends.kaggle.credentials import HOW_TO_GET, KEY, TOKEN, key_places, missing
from trainmaster.errors.errors import CloudError
from trainmaster.home.extras import installing

_LONGEST_WORDS = 300
_REFUSED, _FORBIDDEN, _BUSY, _SERVER_ERROR = 401, 403, 429, 500


class KeysMissingError(Exception):
    """The client found no credentials."""


class RefusedError(Exception):
    """Kaggle refused; the message is Kaggle's."""


def coded(error: BaseException) -> CloudError:
    """The error for the client process."""
    if isinstance(error, CloudError):
        return error
    if isinstance(error, ImportError):
        return _package_missing(error)
    if isinstance(error, (KeysMissingError, SystemExit)):
        return _keys_missing()
    status = http_status(error)
    if status == _REFUSED:
        return key_refused()
    if status is not None:
        return _answered(status, error)
    if isinstance(error, RefusedError):
        return _refused(str(error))
    return _by_kind(error)


def http_status(error: BaseException) -> int | None:
    """The HTTP status behind an error; the client wraps some."""
    for cause in _chain(error):
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(status, int):
            return _status_in_body(cause, status)
    return None


def is_absent(error: BaseException) -> bool:
    """Whether Kaggle reports that the resource does not exist, or is not accessible."""
    return http_status(error) in (_FORBIDDEN, 404)


def key_refused() -> CloudError:
    """The error with the place of the credentials."""
    places = key_places(os.environ) or ["the credentials"]
    message = f"Kaggle does not accept {places[0]}."
    fix = HOW_TO_GET
    if len(places) > 1 and places[0] == TOKEN:
        message += f" It counts before {places[1]}, whether that is good or not."
        fix += f" Or unset {TOKEN}, so that {places[1]} counts."
    return CloudError("KAGGLE_KEY_REFUSED", message, fix)


def cleaned(words: object) -> str:
    """Kaggle's message on one line, without control characters and secrets."""
    text = " ".join(str(words).split())
    for name in (TOKEN, KEY):
        value = os.environ.get(name)
        text = text.replace(value, "***") if value else text
    return shown(text.encode(errors="replace"))[:_LONGEST_WORDS]


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _status_in_body(cause: BaseException, status: int) -> int:
    """Kaggle may answer 200 with the status in the body."""
    code = _body(cause).get("code")
    return code if isinstance(code, int) and code >= 400 else status


def _body(cause: BaseException) -> dict[str, object]:
    try:
        body = cause.response.json()  # type: ignore[attr-defined]
    except Exception:
        return {}
    return body if isinstance(body, dict) else {}


def _answered(status: int, error: BaseException) -> CloudError:
    bodies = map(_body, _chain(error))
    words = next((body["message"] for body in bodies if body.get("message")), "")
    message = f"Kaggle answered with {status}" + (f": {cleaned(words)}" if words else "")
    if status == _BUSY:
        return _unreachable(f"{message}: it accepts no requests for the moment.")
    if status >= _SERVER_ERROR:
        return _unreachable(f"{message}.")
    return _refused(message)


def _by_kind(error: BaseException) -> CloudError:
    """For an error without a status: no answer, or an unreadable one."""
    import requests

    if isinstance(error, requests.exceptions.JSONDecodeError):
        return _unreachable("Kaggle answered with something that can't be read.")
    if isinstance(error, (requests.RequestException, OSError, EOFError)):
        return _unreachable(f"Kaggle gives no answer ({type(error).__name__}).")
    if isinstance(error, (KeyError, TypeError, AttributeError, ValueError)):
        if type(error) is ValueError:  # the client's own checks
            return _refused(str(error))
        return _unreachable(f"Kaggle answered with something else ({type(error).__name__}).")
    return _refused(f"{type(error).__name__}: {error}")


def _unreachable(message: str) -> CloudError:
    return CloudError(
        "KAGGLE_UNREACHABLE",
        message,
        "Try again later; open https://www.kaggle.com in a browser to check whether it is up.",
        retryable=True,
    )


def _refused(words: str) -> CloudError:
    return CloudError(
        "KAGGLE_REFUSED",
        f"Kaggle refused: {cleaned(words).rstrip('.')}.",
        "Fix what it names; some features need a verified phone number in Kaggle's settings.",
    )


def _keys_missing() -> CloudError:
    if key_places(os.environ):
        return key_refused()
    return CloudError("KAGGLE_KEY_MISSING", missing(os.environ), HOW_TO_GET)


def _package_missing(error: ImportError) -> CloudError:
    return CloudError(
        "PACKAGE_MISSING",
        f"Kaggle's own client can't be imported: {cleaned(error)}.",
        f"Install it: {installing('kaggle')}.",
    )
