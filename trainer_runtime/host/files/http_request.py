"""Sends one HTTP request to exactly the given address, without redirects: it may carry secrets."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from typing import Any

from trainer_runtime import __version__


class NotWebError(ValueError):
    """The address is not of http or https."""


def opened(
    method: str,
    url: str,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    body: bytes | None = None,
) -> Any:
    """The answer, to be closed by the caller. No redirect is followed.

    Raises:
        NotWebError: before anything is opened.
        urllib.error.HTTPError: an answer without success, redirects among them.
        OSError, ValueError, http.client.HTTPException: no answer came.
    """
    named = {"User-Agent": f"trainmaster/{__version__}", **headers}
    request = urllib.request.Request(url, body, named, method=method)
    if request.type not in ("http", "https"):
        raise NotWebError(request.type)
    return urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout_s)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
