"""The user's settings: `settings.yaml` in the home, all of it optional.

No tool writes this file, so an agent can't widen its permissions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from trainmaster.words.errors import SpecError, StateError
from trainmaster.words.paths import Home
from trainmaster.words.roles import Role
from trainmaster.words.secret_names import ACCEPTED, name_problem

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _setting(default: Any, text: str, takes: str) -> Any:
    """A setting; `text` says what it does and why its default is what it is."""
    return Field(default, description=text, json_schema_extra={"takes": takes})


def _secret_name(name: str) -> str:
    if name_problem(name) is not None:
        raise ValueError(name_problem(name))
    return name


def _folder(path: str) -> str:
    if not path.startswith(("/", "~/")) or "\0" in path:
        raise ValueError("is not an absolute path")
    return path


def _address(url: str) -> str:
    parts = urlsplit(url)  # a ValueError is a refusal too
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
        raise ValueError("is not an http or https URL")
    return url


class Group(BaseModel):
    """A mapping of the settings: unknown keys are refused and nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class SecretsSettings(Group):
    """The secrets that may leave this machine."""

    allow: list[Annotated[str, AfterValidator(_secret_name)]] = _setting(
        [],
        "Secrets that runs may be given; a spec can name no others. None by default.",
        f"a list of names, each {ACCEPTED}",
    )


def _host_name(name: str) -> str:
    if not _HOST_NAME.fullmatch(name):
        raise ValueError("is not the name of a host")
    return name


class AgentSettings(Group):
    """What an agent may do by itself; see docs/policy.md."""

    folders: list[Annotated[str, AfterValidator(_folder)]] = _setting(
        [],
        "Folders, or single files, that an agent may read and send, besides the server's working "
        "folder, the home's own runs and the downloads. Keys and credentials in them stay "
        "protected. See [policy.md](policy.md).",
        "a list of absolute paths, or ones that start with ~/",
    )
    hosts: list[Annotated[str, AfterValidator(_host_name)]] | None = _setting(
        None,
        "Hosts on which an agent may launch without approval. null: this machine, Kaggle, and "
        "every host on record, since an agent adds one only with approval.",
        "a list of host names, or null",
    )
    secrets: dict[
        Annotated[str, AfterValidator(_secret_name)],
        list[Annotated[str, AfterValidator(_host_name)]],
    ] = _setting(
        {},
        "The hosts that an agent may send a secret to. One that is not named here may go to every "
        "host on which an agent may launch, but to one that an agent added only with approval.",
        "a mapping of names of secrets to lists of host names",
    )
    endpoints: list[Annotated[str, AfterValidator(_address)]] = _setting(
        [],
        "Addresses of model hubs, trackers and package indexes that a spec may name, besides the "
        "public ones and those in this machine's own environment.",
        "a list of http or https URLs",
    )


class Destination(Group):
    """A destination of alerts. Its URL is a secret: anyone who has it can post there."""

    kind: Literal["webhook", "slack", "discord", "command"]
    url: Annotated[str, AfterValidator(_address)] | None = None
    url_secret: Annotated[str, AfterValidator(_secret_name)] | None = None
    command: (
        Annotated[list[Annotated[str, StringConstraints(min_length=1)]], Field(min_length=1)] | None
    ) = None
    sender: Literal["box", "operator"] | None = None
    defaults: bool = True

    @model_validator(mode="after")
    def _has_one_address(self) -> Destination:
        given = [name for name in ("url", "url_secret", "command") if getattr(self, name)]
        wanted = [("command",)] if self.kind == "command" else [("url",), ("url_secret",)]
        if tuple(given) not in wanted or (self.kind == "command" and self.sender == "box"):
            raise ValueError("has no address of its kind, or more than one")
        return self


class KaggleSettings(Group):
    """How kernels are pushed."""

    accelerator: str = _setting(
        "NvidiaTeslaT4",
        "The accelerator of kernels with GPUs. `NvidiaTeslaT4` is two T4s, available to most "
        "accounts: Kaggle silently replaces an accelerator that it does not have.",
        "an accelerator's name as Kaggle's API has it",
    )
    internet: bool = _setting(
        True,
        "Whether kernels may use the internet: to install packages and to fetch models. Kaggle "
        "requires a verified phone number for it.",
        "true or false",
    )
    session_hours: Annotated[float, Field(gt=0, le=12)] = _setting(
        12.0, "How long one session may last; Kaggle ends it after 12 hours.", "hours, at most 12"
    )
    margin_minutes: Annotated[float, Field(ge=0, le=120)] = _setting(
        10.0,
        "How long before a session's end, besides twice the longest save, the trainer is asked to "
        "save: unsaved work of a session is lost.",
        "minutes from 0 to 120",
    )


class MirrorSettings(Group):
    """How much of what hosts send is kept on this machine."""

    run_gib: Annotated[float, Field(gt=0)] = _setting(
        10.0,
        "The most that the logs and records of one run may take on this machine. Beyond it the run "
        "is not read any more, which is a finding; copies of checkpoints are not counted.",
        "GiB, more than 0",
    )
    total_gib: Annotated[float, Field(gt=0)] = _setting(
        100.0,
        "The most that those of all runs may take together. Beyond it only runs below 64 MiB are "
        "still read.",
        "GiB, more than 0",
    )


def _public_url(url: str) -> str:
    parts = urlsplit(_address(url))
    if parts.query or parts.fragment or parts.username or not parts.path.strip("/"):
        raise ValueError("is not the URL of an endpoint")
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise ValueError("is not an https URL")
    return url.rstrip("/")


def _https_address(url: str) -> str:
    if urlsplit(_address(url)).scheme != "https" and urlsplit(url).hostname not in LOOPBACK:
        raise ValueError("is not an https URL")
    return url


def _origin(url: str) -> str:
    parts = urlsplit(_address(url))
    if url != f"{parts.scheme}://{parts.netloc}":
        raise ValueError("is not an origin")
    return url


def _network(text: str) -> str:
    ip_network(text)  # a ValueError is a refusal too
    return text


class OAuthSettings(Group):
    """The authorization server whose tokens the MCP server accepts over HTTP."""

    issuer: Annotated[str, AfterValidator(_https_address)]
    jwks_url: Annotated[str, AfterValidator(_https_address)] | None = None
    introspection_url: Annotated[str, AfterValidator(_https_address)] | None = None
    client_id: str | None = None
    client_secret: Annotated[str, AfterValidator(_secret_name)] | None = None
    audience: str | None = None
    scopes: dict[str, Role] | None = None

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

    url: Annotated[str, AfterValidator(_public_url)] | None = _setting(
        None,
        "The URL of the server's endpoint as clients have it, behind a reverse proxy that of the "
        "proxy. Its host is accepted in requests, its path is served beside `/mcp`, and it is the "
        "audience of OAuth's tokens. See [server.md](server.md).",
        "an https URL with a path, as https://train.example.org/mcp; http on loopback",
    )
    origins: list[Annotated[str, AfterValidator(_origin)]] = _setting(
        [],
        "Origins of web pages that may send requests, besides the server's own. Programs that are "
        "no browsers send none.",
        "a list of origins, as https://app.example.org",
    )
    proxies: list[Annotated[str, AfterValidator(_network)]] = _setting(
        [],
        "Reverse proxies. Only from these `X-Forwarded-For` and `X-Forwarded-Proto` are believed; "
        "with one the server may listen without TLS on other addresses than loopback.",
        "a list of IP addresses and networks, as 10.0.0.0/24",
    )
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = _setting(
        600,
        "How many requests of one access token are answered in a minute. More get HTTP's status "
        "429, with the seconds to wait.",
        "a number from 1 to 1,000,000",
    )
    oauth: OAuthSettings | None = _setting(
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


class Settings(Group):
    """The whole file."""

    secrets: SecretsSettings = _setting(
        SecretsSettings(), "The secrets that may leave this machine.", "a mapping with allow"
    )
    agent: AgentSettings = _setting(AgentSettings(), "What an agent may do by itself.", "a mapping")
    downloads: Annotated[str, AfterValidator(_folder)] | None = _setting(
        None,
        "The folder below which the MCP tool `fetch_files` may write; `downloads` in the home "
        "where this is null. The command `fetch` writes to any folder.",
        "an absolute path, or one that starts with ~/",
    )

    destinations: dict[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")], Destination
    ] = _setting(
        {},
        "Destinations of alerts, by name; see [alerts.md](alerts.md). `url_secret` names a secret "
        "(from the environment or `secrets.env`) that holds the URL. `sender: box`, the default, "
        "gives the run's host the URL, so that alerts are sent also while this machine sleeps; "
        "`operator` keeps it here. A command runs here only. `defaults: false` leaves out the "
        "alerts that every destination gets by default.",
        "a mapping of names to {kind: webhook|slack|discord, url: … or url_secret: NAME, sender: "
        "box|operator, defaults: true|false} or {kind: command, command: [PROGRAM, ARGUMENT…]}",
    )

    max_usd_total: Annotated[float, Field(ge=0)] = _setting(
        100.0,
        "The maximum cost of all recorded rented instances together: what was spent, and what open "
        "leases may still cost. Nothing is rented beyond it.",
        "dollars, 0 or more",
    )
    max_usd_h: Annotated[float, Field(ge=0)] = _setting(
        25.0, "The maximum price of one rented instance per hour.", "dollars, 0 or more"
    )
    max_hours: Annotated[float, Field(gt=0)] = _setting(
        24.0, "The longest lease of an instance.", "hours, more than 0"
    )
    agent_may_spend_usd: Annotated[float, Field(ge=0)] = _setting(
        0.0,
        "What an agent may spend on rented instances without approval, as the sum of their quotes. "
        "0: every request needs an approval.",
        "dollars, 0 or more",
    )
    idle_minutes: Annotated[float, Field(gt=0)] | None = _setting(
        30.0,
        "A rented instance that was idle for so long, and whose runs are mirrored, is released. "
        "null: it is kept until its lease ends.",
        "minutes, more than 0, or null",
    )
    mirror: MirrorSettings = _setting(
        MirrorSettings(), "What is kept of the files of runs.", "a mapping"
    )
    kaggle: KaggleSettings = _setting(KaggleSettings(), "How kernels are pushed.", "a mapping")
    server: ServerSettings = _setting(ServerSettings(), "The MCP server over HTTP.", "a mapping")
    cloud_urls: dict[
        Literal["runpod", "vast", "lambda"], Annotated[str, AfterValidator(_address)]
    ] = _setting(
        {},
        "URLs of the providers' APIs that differ from the usual ones: a proxy, or a test.",
        "a mapping of runpod, vast and lambda to addresses",
    )

    def download_root(self, home: Home) -> Path:
        """The folder below which tools may write."""
        return Path(self.downloads).expanduser() if self.downloads else home.downloads


def read_settings(home: Home) -> Settings:
    """The settings of a home; the defaults without a file.

    Raises:
        StateError: `SETTINGS_NOT_READABLE`, naming the place and what would be accepted there.
    """
    try:
        text = home.settings.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return Settings()
    except (OSError, ValueError) as error:
        raise _unreadable(home, f"can't be read: {error}", "Make it readable UTF-8.") from error
    from trainmaster.words.yaml12 import load_yaml  # heavy, and most homes have no settings

    try:
        document = load_yaml(text)
    except SpecError as error:
        raise _unreadable(home, f"can't be read: {error.message}", error.fix) from error
    try:
        return Settings.model_validate({} if document is None else document)
    except ValidationError as error:
        place = tuple(map(str, error.errors()[0]["loc"]))
        path = ".".join(place)
        problem = f"is not accepted at `{path}`" if path else "is not a mapping"
        raise _unreadable(home, problem, _accepted(place), path or None) from error


def all_settings() -> Iterator[tuple[str, FieldInfo]]:
    """Every setting with its dotted path, in the order of the file."""
    for name, info in Settings.model_fields.items():
        default = info.default
        if isinstance(default, Group):
            for member, part in type(default).model_fields.items():
                yield f"{name}.{member}", part
        else:
            yield name, info


def takes(info: FieldInfo) -> str:
    """A description of the values that a setting accepts."""
    extra = info.json_schema_extra
    return str(extra["takes"]) if isinstance(extra, dict) else ""


def _accepted(place: tuple[str, ...]) -> str:
    """The accepted values of a place, or the known keys around it."""
    known = dict(all_settings())
    for length in range(len(place), 0, -1):
        info = known.get(".".join(place[:length]))
        if info is not None:
            return f"`{'.'.join(place[:length])}` takes {takes(info)}."
    within = [path for path in known if place and path.startswith(f"{place[0]}.")]
    return f"There are these settings: {', '.join(within or known)}."


def _unreadable(home: Home, problem: str, fix: str, field: str | None = None) -> StateError:
    return StateError("SETTINGS_NOT_READABLE", f"{home.settings} {problem}.", fix, field=field)


def reference() -> str:
    """`docs/settings.md`."""
    parts = [_INTRODUCTION]
    for path, info in all_settings():
        default = "null" if info.default is None else info.default
        parts.append(f"## `{path}`\n\n{info.description}\n")
        parts.append(f"- Takes: {takes(info)}\n- Default: `{default}`\n")
    return "\n".join(parts)


_INTRODUCTION = """\
# The settings

Made from the code by `python -m trainmaster.words.settings`.

`settings.yaml` in the home (`trainmaster doctor` prints its path) is YAML with the rules of a spec.
All of it is optional, and unknown keys are refused. Only an editor writes it: no tool or agent can
widen its permissions.

    secrets: {allow: [HF_TOKEN]}
    agent: {folders: [~/corpora], hosts: [local, gpu1]}
    downloads: ~/trainings
    destinations: {ops: {kind: slack, url_secret: OPS_WEBHOOK}}
"""

if __name__ == "__main__":
    print(reference(), end="")
