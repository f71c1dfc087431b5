"""The settings of the MCP server over HTTP."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from trainer_runtime.core.inputs.object_store import StoreAddress
from trainmaster.settings.roles import Role
from trainmaster.settings.secret_names import name_problem

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def setting(default: Any, text: str, takes: str) -> Any:
    """A setting; `text` says what it does and why its default is what it is."""
    return Field(default, description=text, json_schema_extra={"takes": takes})


def secret_name(name: str) -> str:
    """Raises: ValueError: it can't name a secret."""
    if name_problem(name) is not None:
        raise ValueError(name_problem(name))
    return name


def address(url: str) -> str:
    """Raises: ValueError: it is not an http or https URL."""
    parts = urlsplit(url)  # a ValueError is a refusal too
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
        raise ValueError("is not an http or https URL")
    return url


class Group(BaseModel):
    """A mapping of the settings: unknown keys are refused and nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def endpoint(url: str) -> str:
    """Raises: ValueError: it is neither an http or https URL nor a bucket of an object store."""
    bucket = StoreAddress.find(url)
    return address(url) if bucket is None or bucket.key else url


def _public_url(url: str) -> str:
    parts = urlsplit(address(url))
    if parts.query or parts.fragment or parts.username or not parts.path.strip("/"):
        raise ValueError("is not the URL of an endpoint")
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise ValueError("is not an https URL")
    return url.rstrip("/")


def _https_address(url: str) -> str:
    if urlsplit(address(url)).scheme != "https" and urlsplit(url).hostname not in LOOPBACK:
        raise ValueError("is not an https URL")
    return url


def _origin(url: str) -> str:
    parts = urlsplit(address(url))
    if url != f"{parts.scheme}://{parts.netloc}":
        raise ValueError("is not an origin")
    return url


def _network(text: str) -> str:
    ip_network(text)  # a ValueError is a refusal too
    return text


# RFC 6749, section 3.3.
_Scope = Annotated[str, StringConstraints(pattern=r"^[\x21\x23-\x5B\x5D-\x7E]{1,100}$")]


class OAuthSettings(Group):
    """The authorization server whose tokens the MCP server accepts over HTTP."""

    issuer: Annotated[str, AfterValidator(_https_address)]
    jwks_url: Annotated[str, AfterValidator(_https_address)] | None = None
    introspection_url: Annotated[str, AfterValidator(_https_address)] | None = None
    client_id: str | None = None
    client_secret: Annotated[str, AfterValidator(secret_name)] | None = None
    audience: str | None = None
    scopes: Annotated[dict[_Scope, Role], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _can_ask(self) -> OAuthSettings:
        credentials = (self.client_id is not None, self.client_secret is not None)
        if credentials != (self.introspection_url is not None,) * 2:
            raise ValueError("has an introspection_url without credentials, or these without one")
        if self.introspection_url is not None and self.jwks_url is not None:
            raise ValueError("has both jwks_url and introspection_url")
        return self


class ServerSettings(Group):
    """The MCP server over HTTP; see docs/server.md."""

    url: Annotated[str, AfterValidator(_public_url)] | None = setting(
        None,
        "The URL of the server's endpoint as clients have it, behind a reverse proxy that of the "
        "proxy. Its host is accepted in requests, its path is served beside `/mcp`, and it is the "
        "audience of OAuth's tokens. See [server.md](server.md).",
        "an https URL with a path, as https://train.example.org/mcp; http on loopback",
    )
    origins: list[Annotated[str, AfterValidator(_origin)]] = setting(
        [],
        "Origins of web pages that may send requests, besides the server's own. Programs that are "
        "no browsers send none.",
        "a list of origins, as https://app.example.org",
    )
    proxies: list[Annotated[str, AfterValidator(_network)]] = setting(
        [],
        "Reverse proxies. Only from these `X-Forwarded-For` and `X-Forwarded-Proto` are believed; "
        "with one the server may listen without TLS on other addresses than loopback.",
        "a list of IP addresses and networks, as 10.0.0.0/24",
    )
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = setting(
        600,
        "How many requests of one access token are answered in a minute. More get HTTP's status "
        "429, with the seconds to wait.",
        "a number from 1 to 1,000,000",
    )
    oauth: OAuthSettings | None = setting(
        None,
        "The authorization server whose tokens are accepted, besides those of `trainmaster "
        "mcp-tokens`. With `introspection_url` it is asked about each token (RFC 7662), by "
        "`client_id` and `client_secret`, the name of a secret; else tokens are JWTs, checked by "
        "the keys of `jwks_url`, or of the issuer's metadata where that is null. `audience` is "
        "`url` where it is null. `scopes` gives the role of each scope: `trainmaster:read`, "
        "`trainmaster:operate` and `trainmaster:spend` where it is null.",
        "a mapping with issuer, and jwks_url, introspection_url, client_id, client_secret, "
        "audience, scopes; URLs are https",
    )
