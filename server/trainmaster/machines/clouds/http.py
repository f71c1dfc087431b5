"""Client of a provider's JSON API: authentication, limits, retries, and errors as `CloudError`.

Requests that read or end are retried a few times; requests that create are sent once. Redirects
are not followed: the key is meant for one address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, DecodingError, decode_value
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.text import shown
from trainmaster.errors.errors import CloudError, StateError
from trainmaster.machines.clouds.replies import InstanceReply, readable

if TYPE_CHECKING:
    import httpx

    from trainmaster.machines.clouds.cloud import Cloud

Row = TypeVar("Row", bound=InstanceReply)

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_REPLY_S = 30.0
_CONNECT_S = 10.0
_LONGEST_PAUSE_S = 10.0
_MAX_REPLY_BYTES = 16 << 20
_MAX_TEXT_CHARS = 300
_RETRIED = ("GET", "DELETE")
_MESSAGE_FIELDS = ("detail", "message", "msg", "error", "title")


@dataclass(frozen=True, slots=True)
class Pace:
    """`pauses_s`: before each retry; `spacing_s`: minimum time between the starts of two requests;
    `call_s`: limit of a call with all its retries (a tool answers within 45 seconds)."""

    pauses_s: tuple[float, ...] = (0.5, 2.0)
    spacing_s: float = 0.0
    call_s: float = 40.0


@dataclass(frozen=True, slots=True)
class Account:
    """A provider's address and API key. `variable`: the environment variable of the key;
    `key_page`: where to create one; `path_end`: suffix of every path."""

    provider: str
    base_url: str
    key: str = field(repr=False)
    variable: str
    key_page: str
    path_end: str = ""


@dataclass(frozen=True, slots=True)
class Provider:
    """What a provider's module declares as `PROVIDER`; for the fields see `Account`. `client` is
    the module's class that implements `Cloud`."""

    client: Callable[[Api], Cloud]
    base_url: str
    key_page: str
    path_end: str = ""
    pace: Pace = Pace()


class Refusal(Exception):
    """A reply with a 4xx status that the provider's client may handle."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(f"{status} {code} {message}")
        self.status = status
        self.message = message
        self.code = code


DEFAULT_PACE = Pace()
_MAX_PAGES = 400
_GONE = 410


class Api:
    """Connects at the first call; bound to one event loop."""

    def __init__(self, account: Account, pace: Pace = DEFAULT_PACE) -> None:
        self._account = account
        self._pace = pace
        self._next_t = 0.0
        self._client: httpx.AsyncClient | None = None
        _refuse_unusable(account)

    def url(self, *segments: str) -> str:
        """The URL of a resource; each segment is quoted, so that an id can't change the path."""
        for segment in segments:
            if segment in ("", ".", ".."):
                raise self.invalid(f"returned the id {segment!r}")
        quoted = [quote(segment, safe="") for segment in segments]
        return "/".join([self._account.base_url.rstrip("/"), *quoted]) + self._account.path_end

    async def call(
        self,
        method: str,
        *segments: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        retried: bool | None = None,
    ) -> Any:
        """The parsed JSON reply; None for a reply without content.

        `retried`: whether the request may be sent again; by default GET and DELETE are.

        Raises:
            Refusal: any other 4xx status; `refused` converts it.
            CloudError: `CLOUD_KEY_REFUSED`, `RATE_LIMITED`, `CLOUD_UNREACHABLE`,
                `INVALID_RESPONSE`.
        """
        may_retry = method in _RETRIED if retried is None else retried
        once = partial(self._send, method, self.url(*segments), query, body)
        try:
            async with asyncio.timeout(self._pace.call_s):
                return await (self._with_retries(once) if may_retry else once())
        except TimeoutError:
            raise self._unreachable(f"no answer within {self._pace.call_s:g} s") from None

    async def read(self, *segments: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The object that a GET returns.

        Raises:
            CloudError: as `call`, and `CLOUD_REFUSED`.
        """
        return self.as_object(await self.request("GET", *segments, query=query))

    async def listed(
        self,
        *segments: str,
        rows: str,
        page: tuple[str, tuple[str, ...]],
        query: Mapping[str, str] | None = None,
    ) -> list[Any]:
        """The rows of all pages of a list, which each reply has under `rows`.

        `page`: the parameter that asks for another page, and the fields of a reply that may hold
        its value, of which a list in one page has none.

        Raises:
            CloudError: as `read`.
        """
        parameter, fields = page
        entries: list[Any] = []
        parameters = dict(query or {})
        for _ in range(_MAX_PAGES):
            reply = await self.read(*segments, query=parameters)
            part = reply.get(rows)
            if not isinstance(part, list):
                raise self.invalid(f"returned no list of {rows}")
            entries += part
            token = next((reply[name] for name in fields if reply.get(name)), None)
            if token is None:
                return entries
            if not isinstance(token, str | int) or str(token) == parameters.get(parameter):
                break
            parameters[parameter] = str(token)
        raise self.invalid(f"returned an endless list of {rows}")

    async def request(self, method: str, *segments: str, **options: Any) -> Any:
        """As `call`, with `CLOUD_REFUSED` instead of `Refusal`."""
        try:
            return await self.call(method, *segments, **options)
        except Refusal as refusal:
            raise self.refused(refusal) from None

    async def find(self, *segments: str) -> dict[str, Any] | None:
        """As `read`; None for a 404."""
        try:
            return self.as_object(await self.call("GET", *segments))
        except Refusal as refusal:
            self._accept_missing(refusal)
            return None

    async def end(self, method: str, *segments: str, **options: Any) -> None:
        """As `request`; a 404 means that the resource has ended already."""
        try:
            await self.call(method, *segments, **options)
        except Refusal as refusal:
            self._accept_missing(refusal)

    def as_object(self, reply: Any) -> dict[str, Any]:
        if not isinstance(reply, dict):
            raise self.invalid("returned JSON that is not an object")
        return reply

    def parse_instance(self, row: Any, kind: type[Row]) -> Row:
        """An instance's row; it must have an id."""
        rows, _ = readable([row], kind)
        if not rows or not rows[0].id:
            raise self.invalid("returned an instance without an id")
        return rows[0]

    def refused(self, refusal: Refusal) -> CloudError:
        """`CLOUD_REFUSED`, with the provider's message."""
        if refusal.status == _GONE:
            return self._error(
                "CLOUD_REFUSED",
                f"answers that this is gone (status {refusal.status}): "
                f"{refusal.message or 'no reason given'}",
                "It may have retired this version of its API: try a newer Trainmaster, and check "
                "the provider's console for what is rented.",
            )
        return self._error(
            "CLOUD_REFUSED",
            f"refused: {refusal.message or 'no reason given'} (status {refusal.status})",
            "Change the request, or check the account in the provider's console.",
        )

    def invalid(self, problem: str) -> CloudError:
        """`INVALID_RESPONSE`; `problem` follows the provider's name in the message."""
        return self._error(
            "INVALID_RESPONSE",
            problem,
            "Check the provider's console. Its API may have changed: try a newer Trainmaster.",
        )

    async def disconnect(self) -> None:
        """Close connections. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _accept_missing(self, refusal: Refusal) -> None:
        if refusal.status != 404:
            raise self.refused(refusal) from None

    async def _with_retries(self, once: Callable[[], Awaitable[Any]]) -> Any:
        for pause_s in self._pace.pauses_s:
            try:
                return await once()
            except CloudError as error:
                wait_s = max(pause_s, error.after_s if isinstance(error, _RateLimited) else 0.0)
                if not error.retryable or wait_s > _LONGEST_PAUSE_S:
                    raise
            await asyncio.sleep(wait_s)
        return await once()

    async def _send(self, method: str, url: str, query: Mapping[str, str] | None, body: Any) -> Any:
        import httpx

        await self._wait_for_slot()
        try:
            request = self._connected_client().stream(method, url, params=query, json=body)
            async with request as reply:
                content = bytearray()
                async for piece in reply.aiter_bytes():
                    content += piece
                    if len(content) > _MAX_REPLY_BYTES:
                        raise self.invalid("returned a reply larger than 16 MiB")
                return self._parse(reply, bytes(content))
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise self._unreachable(_plain_text(str(error)) or type(error).__name__) from None

    async def _wait_for_slot(self) -> None:
        now_t = asyncio.get_running_loop().time()
        begin_t = max(now_t, self._next_t)
        self._next_t = begin_t + self._pace.spacing_s
        await asyncio.sleep(begin_t - now_t)

    def _connected_client(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            url = self._account.base_url
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(_REPLY_S, connect=_CONNECT_S),
                headers={"Authorization": f"Bearer {self._account.key}"},
                trust_env=not _is_loopback(url),  # no proxy for loopback
                verify=_is_encrypted(url),  # loading certificates is slow
            )
        return self._client

    def _parse(self, reply: httpx.Response, content: bytes) -> Any:
        status = reply.status_code
        if status in (401, 403):
            raise self._key_refused(status, self.problem_of(content)[0])
        if status == 429:
            raise self._rate_limited(reply.headers.get("Retry-After", ""))
        if status >= 500:
            message = self.problem_of(content)[0]
            raise self._unreachable(f"status {status}{': ' if message else ''}{message}")
        if status >= 400:
            raise Refusal(status, *self.problem_of(content))
        if not 200 <= status < 300:
            raise self.invalid(f"returned status {status}")
        if not content:
            return None
        try:
            return decode_value(content, "reply", max_bytes=MAX_DOCUMENT_BYTES)
        except DecodingError:
            raise self.invalid("returned a reply that is not JSON") from None

    def problem_of(self, content: bytes) -> tuple[str, str]:
        """The message and the code of an error reply, in any of the providers' forms."""
        try:
            document = decode_value(content, "reply")
        except DecodingError:
            return self._clean(content.decode(errors="replace")), ""
        if not isinstance(document, dict):
            return "", ""
        inner = document.get("error")
        source = inner if isinstance(inner, dict) else document
        messages_given = [
            source[name] for name in _MESSAGE_FIELDS if isinstance(source.get(name), str)
        ]
        details = source.get("errors")
        listed = details[:3] if isinstance(details, list) else []
        code = source.get("code", inner if isinstance(inner, str) else "")
        messages = [*messages_given[:1], *(item for item in listed if isinstance(item, str))]
        return self._clean("; ".join(messages)), str(code)[:100]

    def _clean(self, text: str) -> str:
        return _plain_text(text.replace(self._account.key, "***"))

    def _key_refused(self, status: int, message: str) -> CloudError:
        detail = f": {message}" if message else ""
        return self._error(
            "CLOUD_KEY_REFUSED",
            f"does not accept the key in {self._account.variable} (status {status}{detail})",
            f"Create a key that may rent machines at {self._account.key_page}, and set "
            f"{self._account.variable} in the environment or in secrets.env.",
        )

    def _rate_limited(self, retry_after: str) -> _RateLimited:
        after_s = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
        pause = f" for {spoken_duration(after_s)}" if after_s else ""
        message = f"{self._account.provider} accepts no requests{pause} (status 429)."
        error = _RateLimited("RATE_LIMITED", message, "Try again later.", retryable=True)
        error.after_s = after_s
        return error

    def _unreachable(self, reason: str) -> CloudError:
        where = urlsplit(self._account.base_url).hostname
        return self._error(
            "CLOUD_UNREACHABLE",
            f"does not answer at {where}: {reason}",
            "Check the connection and the provider's status page, then try again.",
            retryable=True,
        )

    def _error(self, code: str, problem: str, fix: str, retryable: bool = False) -> CloudError:
        return CloudError(code, f"{self._account.provider} {problem}.", fix, retryable=retryable)


class _RateLimited(CloudError):
    after_s: float = 0.0


def _refuse_unusable(account: Account) -> None:
    if not account.key.isascii() or not account.key.isprintable() or " " in account.key:
        raise CloudError(
            "CLOUD_KEY_REFUSED",
            f"The value of {account.variable} is not a valid key: it contains blanks or other "
            "characters that keys do not have.",
            f"Copy the key again from {account.key_page}.",
        )
    if not _is_encrypted(account.base_url) and not _is_loopback(account.base_url):
        raise StateError(
            "SETTINGS_NOT_READABLE",
            f"The settings would send the key of {account.provider} unencrypted.",
            "Set an https address in cloud_urls.",
            field=f"cloud_urls.{account.provider}",
        )


def _is_encrypted(url: str) -> bool:
    return urlsplit(url).scheme == "https"


def _is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in LOOPBACK


def _plain_text(text: str) -> str:
    """A provider's message on one line, without control characters, of limited length."""
    clean = " ".join(shown(" ".join(text.split()).encode()).split()).rstrip(".")
    return clean if len(clean) <= _MAX_TEXT_CHARS else clean[:_MAX_TEXT_CHARS] + "…"
