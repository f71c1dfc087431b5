"""An authorization server: metadata, published keys, introspection, and tokens as asked for."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

CLIENT = ("resource-server", "its-secret")


class AuthorizationServer:
    """`asked`: the paths of the requests so far. `opaque`: what introspection knows. `drips`:
    introspection sends a byte now and then, without end."""

    def __init__(self) -> None:
        self.issuer = ""
        self.asked: list[str] = []
        self.opaque: dict[str, dict[str, Any]] = {}
        self.is_broken = False
        self.drips = False
        self._keys = {"first": _new_key()}

    def roll_keys(self, name: str) -> None:
        """Publish one other key instead."""
        self._keys = {name: _new_key()}

    def token(self, *, key: Any = None, algorithm: str = "ES256", **claims: Any) -> str:
        """A JWT that is in order but for what `claims` say; None leaves one out."""
        now = int(time.time())
        whole = {"iss": self.issuer, "sub": "ann", "exp": now + 600, "iat": now} | claims
        given = {name: value for name, value in whole.items() if value is not None}
        name, own = next(iter(self._keys.items()))
        return jwt.encode(given, key or own, algorithm=algorithm, headers={"kid": name})

    async def metadata(self, request: Request) -> Response:
        self.asked.append(request.url.path)
        places = {"jwks_uri": "keys", "token_endpoint": "token", "authorization_endpoint": "begin"}
        found = {name: f"{self.issuer}/{path}" for name, path in places.items()}
        return JSONResponse({"issuer": self.issuer, **found})

    async def give_out(self, request: Request) -> Response:
        """A token for the resource and scope that its client asks for (RFC 8707)."""
        self.asked.append(request.url.path)
        form = await request.form()
        if request.headers["authorization"] != _basic(*CLIENT):
            return JSONResponse({"error": "invalid_client"}, 401)
        token = self.token(sub="robot", aud=form["resource"], scope=form["scope"])
        return JSONResponse({"access_token": token, "token_type": "Bearer", "expires_in": 600})

    async def keys(self, request: Request) -> Response:
        self.asked.append(request.url.path)
        if self.is_broken:
            return Response("<html>", 200)
        found = [
            {**jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": name}
            for name, key in self._keys.items()
        ]
        return JSONResponse({"keys": found})

    async def introspection(self, request: Request) -> Response:
        self.asked.append(request.url.path)
        form = await request.form()
        if request.headers["authorization"] != _basic(*CLIENT):
            return JSONResponse({"error": "invalid_client"}, 401)
        if self.drips:
            return StreamingResponse(_drops(), media_type="application/json")
        return JSONResponse(self.opaque.get(str(form["token"]), {"active": False}))


@asynccontextmanager
async def authorization_server() -> AsyncIterator[AuthorizationServer]:
    """One that listens on loopback."""
    served = AuthorizationServer()
    app = Starlette(
        routes=[
            Route("/.well-known/openid-configuration", served.metadata),
            Route("/keys", served.keys),
            Route("/token", served.give_out, methods=["POST"]),
            Route("/introspect", served.introspection, methods=["POST"]),
        ]
    )
    config = uvicorn.Config(app, port=0, lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        with anyio.fail_after(60):
            while not server.started:
                await anyio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        served.issuer = f"http://127.0.0.1:{port}"
        try:
            yield served
        finally:
            server.should_exit = True


async def _drops() -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await anyio.sleep(0.05)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _basic(user: str, password: str) -> str:
    import base64

    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
