"""A provider's JSON API: a key, bounds, and every way of failing made one of our errors.

What only reads or ends may be repeated, and is, a few times; what creates is sent once. Redirects
are not followed: the key is for one address.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from trainer_runtime.core.protocol.text import shown
from trainmaster.machines.clouds.replies import Described, readable
from trainmaster.words.errors import CloudError, StateError

if TYPE_CHECKING:
    import httpx

Row = TypeVar("Row", bound=Described)

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_REPLY_S = 30.0
_CONNECT_S = 10.0
_LONGEST_PAUSE_S = 10.0
_LARGEST_REPLY_BYTES = 16 << 20
_LONGEST_WORDS = 300
_REPEATED = ("GET", "DELETE")
_PLACES_OF_WORDS = ("detail", "message", "msg", "error", "title")


@dataclass(frozen=True, slots=True)
class Pace:
    """`pauses_s`: before the second and each further try of what may be repeated; `spacing_s`:
    from the start of one request to the next; `call_s` bounds a call with all its tries (a tool
    answers within 45 seconds)."""

    pauses_s: tuple[float, ...] = (0.5, 2.0)
    spacing_s: float = 0.0
    call_s: float = 40.0


@dataclass(frozen=True, slots=True)
class Account:
    """Whose API it is and what opens it; `variable` is where the key is looked for, `key_page`
    where one is made; `path_end`: what the provider wants after every path."""

    provider: str
    base_url: str
    key: str = field(repr=False)
    variable: str
    key_page: str
    path_end: str = ""


class Refusal(Exception):
    """A reply with an error status that the provider's own client may understand better."""

    def __init__(self, status: int, words: str, code: str) -> None:
        super().__init__(f"{status} {code} {words}")
        self.status = status
        self.words = words
        self.code = code


DEFAULT_PACE = Pace()


class Api:
    """Connects at the first call; of one event loop."""

    def __init__(self, account: Account, pace: Pace = DEFAULT_PACE) -> None:
        self._account = account
        self._pace = pace
        self._next_t = 0.0
        self._client: httpx.AsyncClient | None = None
        _refuse_unusable(account)

    def url(self, *segments: str) -> str:
        """The address of a resource; what a provider called it becomes one segment, whatever
        stands in it."""
        for segment in segments:
            if segment in ("", ".", ".."):
                raise self._error("CLOUD_ODD_REPLY", f"has something called {segment!r}", _ODD_FIX)
        quoted = [quote(segment, safe="") for segment in segments]
        return "/".join([self._account.base_url.rstrip("/"), *quoted]) + self._account.path_end

    async def call(
        self,
        method: str,
        *segments: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        repeated: bool | None = None,
    ) -> Any:
        """What the API answers, as JSON; None for a reply without content.

        `repeated`: whether it may be sent again; so are GET and DELETE, and nothing else, where
        that is not said.

        Raises:
            Refusal: any other 4xx than those below; `refused` makes an error of it.
            CloudError: `CLOUD_KEY_REFUSED`, `CLOUD_BUSY`, `CLOUD_UNREACHABLE`, `CLOUD_ODD_REPLY`.
        """
        may_repeat = method in _REPEATED if repeated is None else repeated
        once = partial(self._once, method, self.url(*segments), query, body)
        try:
            async with asyncio.timeout(self._pace.call_s):
                return await (self._repeatedly(once) if may_repeat else once())
        except TimeoutError:
            raise self._unreachable(f"no answer within {self._pace.call_s:g} s") from None

    async def read(self, *segments: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What a GET answers: an object.

        Raises:
            CloudError: as `call`, and `CLOUD_REFUSED`.
        """
        return self.as_object(await self.asked("GET", *segments, query=query))

    async def asked(self, method: str, *segments: str, **how: Any) -> Any:
        """As `call`, where no refusal means anything in particular."""
        try:
            return await self.call(method, *segments, **how)
        except Refusal as refusal:
            raise self.refused(refusal) from None

    async def known(self, *segments: str) -> dict[str, Any] | None:
        """As `read`; None where there is no such thing, which only a 404 tells."""
        try:
            return self.as_object(await self.call("GET", *segments))
        except Refusal as refusal:
            self._pass_missing(refusal)
            return None

    async def end(self, method: str, *segments: str, **how: Any) -> None:
        """As `asked`, of what may have ended before."""
        try:
            await self.call(method, *segments, **how)
        except Refusal as refusal:
            self._pass_missing(refusal)

    def as_object(self, reply: Any) -> dict[str, Any]:
        if not isinstance(reply, dict):
            raise self.odd("answers with something that is no object")
        return reply

    def described(self, row: Any, kind: type[Row]) -> Row:
        """A box as it is described, which has to have an id."""
        found, _ = readable([row], kind)
        if not found or not found[0].id:
            raise self.odd("describes a box without an id")
        return found[0]

    def refused(self, refusal: Refusal) -> CloudError:
        """`CLOUD_REFUSED`, with the provider's words."""
        return self._error(
            "CLOUD_REFUSED",
            f"refuses: {refusal.words or 'without a word'} (status {refusal.status})",
            "The reason is the provider's own: change what is asked for, or look at the account.",
        )

    def odd(self, what: str) -> CloudError:
        """`CLOUD_ODD_REPLY`; `what` goes on after the provider's name."""
        return self._error("CLOUD_ODD_REPLY", what, _ODD_FIX)

    async def disconnect(self) -> None:
        """Let go of connections; may be repeated."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _pass_missing(self, refusal: Refusal) -> None:
        if refusal.status != 404:
            raise self.refused(refusal) from None

    async def _repeatedly(self, once: Callable[[], Awaitable[Any]]) -> Any:
        for pause_s in self._pace.pauses_s:
            try:
                return await once()
            except CloudError as error:
                wait_s = max(pause_s, error.after_s if isinstance(error, _Busy) else 0.0)
                if not error.retryable or wait_s > _LONGEST_PAUSE_S:
                    raise
            await asyncio.sleep(wait_s)
        return await once()

    async def _once(self, method: str, url: str, query: Mapping[str, str] | None, body: Any) -> Any:
        import httpx

        await self._take_turn()
        try:
            request = self._opened().stream(method, url, params=query, json=body)
            async with request as reply:
                content = bytearray()
                async for piece in reply.aiter_bytes():
                    content += piece
                    if len(content) > _LARGEST_REPLY_BYTES:
                        raise self.odd("gives an answer that has no end")
                return self._read(reply, bytes(content))
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise self._unreachable(_words(str(error)) or type(error).__name__) from None

    async def _take_turn(self) -> None:
        now_t = asyncio.get_running_loop().time()
        begin_t = max(now_t, self._next_t)
        self._next_t = begin_t + self._pace.spacing_s
        await asyncio.sleep(begin_t - now_t)

    def _opened(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            url = self._account.base_url
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(_REPLY_S, connect=_CONNECT_S),
                headers={"Authorization": f"Bearer {self._account.key}"},
                trust_env=not _is_loopback(url),  # no proxy on the way home
                verify=_is_encrypted(url),  # certificates take their time to load
            )
        return self._client

    def _read(self, reply: httpx.Response, content: bytes) -> Any:
        status = reply.status_code
        if status in (401, 403):
            raise self._key_refused(status, self.told(content)[0])
        if status == 429:
            raise self._busy(reply.headers.get("Retry-After", ""))
        if status >= 500:
            told = self.told(content)[0]
            raise self._unreachable(f"status {status}{': ' if told else ''}{told}")
        if status >= 400:
            raise Refusal(status, *self.told(content))
        if not 200 <= status < 300:
            raise self.odd(f"answers with status {status}")
        if not content:
            return None
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise self.odd("answers with something that is no JSON") from None

    def told(self, content: bytes) -> tuple[str, str]:
        """The words and the code of an error reply, of whatever form it is."""
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            return self._clean(content.decode(errors="replace")), ""
        if not isinstance(document, dict):
            return "", ""
        inner = document.get("error")
        places = inner if isinstance(inner, dict) else document
        found = [places[name] for name in _PLACES_OF_WORDS if isinstance(places.get(name), str)]
        details = places.get("errors")
        listed = details[:3] if isinstance(details, list) else []
        code = places.get("code", inner if isinstance(inner, str) else "")
        words = [*found[:1], *(item for item in listed if isinstance(item, str))]
        return self._clean("; ".join(words)), str(code)[:100]

    def _clean(self, words: str) -> str:
        return _words(words.replace(self._account.key, "***"))

    def _key_refused(self, status: int, words: str) -> CloudError:
        told = f": {words}" if words else ""
        return self._error(
            "CLOUD_KEY_REFUSED",
            f"does not accept the key in {self._account.variable} (status {status}{told})",
            f"Make one that may rent machines at {self._account.key_page}, and put it into the "
            f"environment or secrets.env as {self._account.variable}.",
        )

    def _busy(self, retry_after: str) -> _Busy:
        after_s = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
        told = f" for {after_s:.0f} s" if after_s else ""
        message = f"{self._account.provider} takes no more requests{told} (status 429)."
        error = _Busy("CLOUD_BUSY", message, "Try again in a while.", retryable=True)
        error.after_s = after_s
        return error

    def _unreachable(self, reason: str) -> CloudError:
        where = urlsplit(self._account.base_url).hostname
        return self._error(
            "CLOUD_UNREACHABLE",
            f"gives no answer at {where}: {reason}",
            "Check the connection and the provider's status page, then try again.",
            retryable=True,
        )

    def _error(self, code: str, told: str, fix: str, retryable: bool = False) -> CloudError:
        return CloudError(code, f"{self._account.provider} {told}.", fix, retryable=retryable)


class _Busy(CloudError):
    after_s: float = 0.0


_ODD_FIX = (
    "Look at the provider's own console; its API may have changed, and a newer Trainmaster may "
    "know it."
)


def _refuse_unusable(account: Account) -> None:
    if not account.key.isascii() or not account.key.isprintable() or " " in account.key:
        raise CloudError(
            "CLOUD_KEY_REFUSED",
            f"The value of {account.variable} is no key: there are blanks or other characters in "
            "it that no key has.",
            f"Copy the key anew from {account.key_page}.",
        )
    if not _is_encrypted(account.base_url) and not _is_loopback(account.base_url):
        raise StateError(
            "SETTINGS_NOT_READABLE",
            f"The settings would send the key of {account.provider} over a line that everybody on "
            "the way can read.",
            "Let cloud_urls name an https address.",
            field=f"cloud_urls.{account.provider}",
        )


def _is_encrypted(url: str) -> bool:
    return urlsplit(url).scheme == "https"


def _is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in LOOPBACK


def _words(text: str) -> str:
    """A provider's words as they may be shown."""
    clean = " ".join(shown(" ".join(text.split()).encode()).split()).rstrip(".")
    return clean if len(clean) <= _LONGEST_WORDS else clean[:_LONGEST_WORDS] + "…"
