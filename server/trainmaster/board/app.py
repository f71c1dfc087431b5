"""The board's addresses: its page and files, and the data that they show. All of them only read."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from trainmaster.answers.base import ON_COMMAND_LINE, Answer
from trainmaster.answers.plot import as_axis
from trainmaster.board.access import Access, Guarded, error_response
from trainmaster.board.reads import CurvesQuery, Reads
from trainmaster.calls.work import too_long
from trainmaster.errors.errors import StateError, TrainmasterError, UsageError
from trainmaster.metrics.plots.palette import stylesheet
from trainmaster.store.failures import as_error
from trainmaster.sync.rebuild import rebuild_behind
from trainmaster.sync.workspace import Workspace

_Answer = TypeVar("_Answer")
# An answer is made again after this many times what it took: 5% of a core for each that is shown,
# on however many pages.
_PAUSES = 20.0
_SHORTEST_PAUSE_S = 0.5
# Without news a run is lost by silence, and times to go pass.
_LONGEST_PAUSE_S = 5.0
_MOST = 64
_PAGE = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_LONGEST_NAME = 200


class BoardApp:
    """The application; `seen_t`: when data was last asked for, by the monotonic clock."""

    def __init__(self, workspace: Workspace, access: Access) -> None:
        self._workspace = workspace
        self._reads = Reads(workspace)
        self._remembered = Remembered(workspace)
        self._files = _files()
        self.seen_t = time.monotonic()
        routes = [
            Route("/", self._file),
            Route("/assets/{name}", self._file),
            Route("/api/board", self._board),
            Route("/api/run", self._run),
            Route("/api/curves", self._curves),
            Route("/api/comparison", self._comparison),
            Route("/api/machines", self._machines),
        ]
        app = Starlette(routes=routes)
        app.router.redirect_slashes = False  # a path has one spelling
        self.asgi: ASGIApp = Guarded(app, access)

    async def _file(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in self._files:
            return Response("Not found.", 404, media_type="text/plain")
        body = self._files[name]
        etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        return _unless_known(request, body, etag, _TYPES[Path(name).suffix])

    async def _board(self, request: Request) -> Response:
        return await self._answer(request, "board", self._reads.board)

    async def _machines(self, request: Request) -> Response:
        return await self._answer(request, "machines", self._reads.machines)

    async def _run(self, request: Request) -> Response:
        run = request.query_params.get("run", "")[:_LONGEST_NAME]
        return await self._answer(request, ("run", run), lambda: self._reads.run(run))

    async def _curves(self, request: Request) -> Response:
        try:
            query = _curves_query(request)
        except UsageError as error:
            return error_response(error, 400)
        return await self._answer(request, query, lambda: self._reads.curves(query))

    async def _comparison(self, request: Request) -> Response:
        runs = _runs(request)
        question = ("comparison", *runs)
        return await self._answer(request, question, lambda: self._reads.comparison(runs))

    async def _answer(
        self, request: Request, asked: Hashable, make: Callable[[], Awaitable[Answer]]
    ) -> Response:
        self.seen_t = time.monotonic()
        try:
            rebuild_behind(self._workspace)
            held = await while_awaited(request, self._remembered.answer(asked, make))
        except Exception as error:
            failure = as_error(error, self._workspace.home, request.url.path)
            if (
                failure.code == "DATABASE_DAMAGED"
            ):  # it is set aside by now, and the page asks again
                self._workspace.reopen_metrics()
            return error_response(failure, _status(failure))
        return _unless_known(request, held.body, held.etag, "application/json")


def _curves_query(request: Request) -> CurvesQuery:
    """Raises: UsageError: `BAD_ARGUMENT`."""
    parameters = request.query_params
    return CurvesQuery(
        runs=_runs(request),
        keys=tuple(key[:_LONGEST_NAME] for key in parameters.getlist("key")),
        axis=as_axis(parameters.get("x", "step")),
        first=_step(parameters.get("from")),
        last=_step(parameters.get("to")),
    )


def _runs(request: Request) -> tuple[str, ...]:
    return tuple(run[:_LONGEST_NAME] for run in request.query_params.getlist("run"))


def _step(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise UsageError("BAD_ARGUMENT", "That is not a step.", "Give a number.", field="from")
    return int(text)


def _status(error: TrainmasterError) -> int:
    if isinstance(error, StateError):
        return 404
    return 400 if isinstance(error, UsageError) else 500


def _unless_known(request: Request, body: bytes, etag: str, media_type: str) -> Response:
    headers = {"ETag": etag}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=media_type)


def _files() -> dict[str, bytes]:
    """By name, what the page consists of."""
    page_files = {path.name: path.read_bytes() for path in _PAGE.iterdir() if path.suffix in _TYPES}
    return {**page_files, "palette.css": stylesheet().encode()}


@dataclass(frozen=True, slots=True)
class Held:
    """An answer as JSON; `etag` changes with it. `made_t`, `took_s`: by the monotonic clock."""

    body: bytes
    etag: str
    version: object
    made_t: float
    took_s: float


@dataclass(slots=True)
class _Making:
    """An answer that is being made, and how many pages wait for it."""

    task: asyncio.Task[Held]
    waiting: int = 0


class Remembered:
    """The last answers to what was asked."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._held: OrderedDict[Hashable, Held] = OrderedDict()
        self._under_way: dict[Hashable, _Making] = {}
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, asked: Hashable, make: Callable[[], Awaitable[Answer]]) -> Held:
        """The answer to what was `asked`, made by `make` where there may be news.

        It is made once for all who wait for it; that ends with the last of them.

        Raises: whatever `make` raises.
        """
        making = self._under_way.get(asked)
        if making is None:
            making = _Making(asyncio.create_task(self._newest(asked, make)))
            self._under_way[asked] = making
        making.waiting += 1
        try:
            return await asyncio.shield(making.task)
        finally:
            making.waiting -= 1
            if not making.waiting:
                del self._under_way[asked]
                making.task.cancel()

    async def _newest(self, asked: Hashable, make: Callable[[], Awaitable[Answer]]) -> Held:
        async with self._one_at_a_time:
            held = self._held.get(asked)
            if held is None or self._may_be_old(held):
                held = self._held[asked] = await self._refreshed(make)
            self._held.move_to_end(asked)
            while len(self._held) > _MOST:
                self._held.popitem(last=False)
            return held

    def _may_be_old(self, held: Held) -> bool:
        age_s = time.monotonic() - held.made_t
        if age_s < max(_SHORTEST_PAUSE_S, _PAUSES * held.took_s):
            return False
        return age_s >= _LONGEST_PAUSE_S or held.version != self._version()

    async def _refreshed(self, make: Callable[[], Awaitable[Answer]]) -> Held:
        began, version = time.monotonic(), self._version()
        answer = await make()
        body = answer.model_dump_json(context=ON_COMMAND_LINE).encode(errors="replace")
        now = time.monotonic()
        etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        return Held(body, etag, version, now, now - began)

    def _version(self) -> object:
        return self._workspace.control.version(), self._workspace.metrics.version()


async def while_awaited(request: Request, answer: Coroutine[Any, Any, _Answer]) -> _Answer:
    """The answer to a request without a body; it is cancelled once the connection is closed.

    Raises:
        StateError: `READ_TOO_LONG`, nobody waits for it; and whatever `answer` raises.
    """
    making, leaving = asyncio.create_task(answer), asyncio.create_task(_leaves(request))
    try:
        await asyncio.wait((making, leaving), return_when=asyncio.FIRST_COMPLETED)
        if making.done():
            return making.result()
        raise too_long("The page that asked for this is closed.")
    finally:
        making.cancel()
        leaving.cancel()


async def _leaves(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
