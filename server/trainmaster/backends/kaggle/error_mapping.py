"""What Kaggle's client raises, as errors that can be acted on. Part of the worker's process."""

from __future__ import annotations

import os
from collections.abc import Iterator

from trainer_runtime.core.protocol.text import shown
from trainmaster.backends.kaggle.credentials import HOW_TO_GET, KEY, TOKEN, key_places, missing
from trainmaster.words.errors import CloudError

_LONGEST_WORDS = 300
_REFUSED, _FORBIDDEN, _BUSY, _SERVER_ERROR = 401, 403, 429, 500


class KeysMissingError(Exception):
    """The client found no credentials that it would try."""


class RefusedError(Exception):
    """Kaggle answered, and said no; the message is its own."""


def coded(error: BaseException) -> CloudError:
    """The error that the operator's side raises."""
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
    """The status of the answer behind an error; the client hides some behind its own words."""
    for cause in _chain(error):
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(status, int):
            return _told_status(cause, status)
    return None


def is_absent(error: BaseException) -> bool:
    """True where Kaggle says that there is no such thing, or none that we may see."""
    return http_status(error) in (_FORBIDDEN, 404)


def key_refused() -> CloudError:
    """Told with the place that the credentials came from."""
    places = key_places(os.environ) or ["the credentials"]
    message = f"Kaggle does not accept {places[0]}."
    fix = HOW_TO_GET
    if len(places) > 1 and places[0] == TOKEN:
        message += f" It counts before {places[1]}, whether that is good or not."
        fix += f" Or unset {TOKEN}, so that {places[1]} counts."
    return CloudError("KAGGLE_KEY_REFUSED", message, fix)


def cleaned(words: object) -> str:
    """Kaggle's words on one line, harmless, without anything that is secret."""
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


def _told_status(cause: BaseException, status: int) -> int:
    """Kaggle may say 200 and put the code into the body."""
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
    told = f"Kaggle answered with {status}" + (f": {cleaned(words)}" if words else "")
    if status == _BUSY:
        return _unreachable(f"{told}: it takes no more requests for the moment.")
    if status >= _SERVER_ERROR:
        return _unreachable(f"{told}.")
    return _refused(told)


def _by_kind(error: BaseException) -> CloudError:
    """No status was seen: there was no answer, or none that can be read."""
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


def _unreachable(told: str) -> CloudError:
    return CloudError(
        "KAGGLE_UNREACHABLE",
        told,
        "Try again later; https://www.kaggle.com tells in a browser whether it is there.",
        retryable=True,
    )


def _refused(words: str) -> CloudError:
    return CloudError(
        "KAGGLE_REFUSED",
        f"Kaggle refuses: {cleaned(words).rstrip('.')}.",
        "Mend what it names; some things need a phone number that is verified in its settings.",
    )


def _keys_missing() -> CloudError:
    if key_places(os.environ):
        return key_refused()
    return CloudError("KAGGLE_KEY_MISSING", missing(os.environ), HOW_TO_GET)


def _package_missing(error: ImportError) -> CloudError:
    return CloudError(
        "PACKAGE_MISSING",
        f"Kaggle's own client can't be imported: {cleaned(error)}.",
        "Install it: pip install 'trainmaster[kaggle]'",
    )
