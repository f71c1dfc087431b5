"""The user's settings: `settings.yaml` in the home, all of it optional.

No tool writes this file, so an agent can't widen its permissions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from trainer_runtime.core.alerts.destination_kinds import KINDS, WEB_KINDS, KindName
from trainmaster.errors.errors import SpecError, StateError
from trainmaster.home.paths import Home
from trainmaster.settings.clouds import CLOUD_NAMES, CloudName
from trainmaster.settings.secret_names import ACCEPTED
from trainmaster.settings.server_settings import (
    Group,
    ServerSettings,
    address,
    endpoint,
    secret_name,
    setting,
)

_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _folder(path: str) -> str:
    if not path.startswith(("/", "~/")) or "\0" in path:
        raise ValueError("is not an absolute path")
    return path


class SecretsSettings(Group):
    """The secrets that may leave this machine."""

    allow: list[Annotated[str, AfterValidator(secret_name)]] = setting(
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

    folders: list[Annotated[str, AfterValidator(_folder)]] = setting(
        [],
        "Folders, or single files, that an agent may read and send, besides the server's working "
        "folder, the home's own runs and the downloads. Keys and credentials in them stay "
        "protected. See [policy.md](policy.md).",
        "a list of absolute paths, or ones that start with ~/",
    )
    hosts: list[Annotated[str, AfterValidator(_host_name)]] | None = setting(
        None,
        "Hosts on which an agent may launch without approval. null: this machine, Kaggle, and "
        "every host on record, since an agent adds one only with approval.",
        "a list of host names, or null",
    )
    secrets: dict[
        Annotated[str, AfterValidator(secret_name)],
        list[Annotated[str, AfterValidator(_host_name)]],
    ] = setting(
        {},
        "The hosts that an agent may send a secret to. One that is not named here may go to every "
        "host on which an agent may launch, but to one that an agent added only with approval.",
        "a mapping of names of secrets to lists of host names",
    )
    endpoints: list[Annotated[str, AfterValidator(endpoint)]] = setting(
        [],
        "Addresses of model hubs, trackers and package indexes that a spec may name, besides the "
        "public ones and those in this machine's own environment; and buckets of object stores.",
        "a list of http or https URLs, or of s3://BUCKET (gs://, az://)",
    )


class Destination(Group):
    """A destination of alerts. Its URL is a secret: anyone who has it can post there."""

    kind: KindName
    url: Annotated[str, AfterValidator(address)] | None = None
    url_secret: Annotated[str, AfterValidator(secret_name)] | None = None
    command: (
        Annotated[list[Annotated[str, StringConstraints(min_length=1)]], Field(min_length=1)] | None
    ) = None
    sender: Literal["box", "operator"] | None = None
    defaults: bool = True

    @model_validator(mode="after")
    def _has_one_address(self) -> Destination:
        addresses = [name for name in ("url", "url_secret", "command") if getattr(self, name)]
        is_program = KINDS[self.kind].is_program
        wanted = [("command",)] if is_program else [("url",), ("url_secret",)]
        if tuple(addresses) not in wanted or (is_program and self.sender == "box"):
            raise ValueError("has no address of its kind, or more than one")
        return self


class KaggleSettings(Group):
    """How kernels are pushed."""

    accelerator: str = setting(
        "NvidiaTeslaT4",
        "The accelerator of kernels with GPUs. `NvidiaTeslaT4` is two T4s, available to all "
        "accounts; `NvidiaL4` is four L4s, `NvidiaL4X1` one. `NvidiaTeslaA100`, `NvidiaH100` and "
        "`NvidiaRtxPro6000` are for some competitions. Planning refuses any other name: Kaggle "
        "silently replaces an accelerator that it does not have.",
        "an accelerator's exact name in Kaggle's API",
    )
    internet: bool = setting(
        True,
        "Whether kernels may use the internet: to install packages and to fetch models. Kaggle "
        "requires a verified phone number for it.",
        "true or false",
    )
    session_hours: Annotated[float, Field(gt=0, le=12)] = setting(
        12.0, "How long one session may last; Kaggle ends it after 12 hours.", "hours, at most 12"
    )
    margin_minutes: Annotated[float, Field(ge=0, le=120)] = setting(
        10.0,
        "How long before a session's end, besides twice the longest save, the trainer is asked to "
        "save: unsaved work of a session is lost.",
        "minutes from 0 to 120",
    )


class MirrorSettings(Group):
    """How much of what hosts send is kept on this machine."""

    run_gib: Annotated[float, Field(gt=0)] = setting(
        10.0,
        "The most that the logs and records of one run may take on this machine. Beyond it the run "
        "is not read any more, which is a finding; copies of checkpoints are not counted.",
        "GiB, more than 0",
    )
    total_gib: Annotated[float, Field(gt=0)] = setting(
        100.0,
        "The most that those of all runs may take together. Beyond it only runs below 64 MiB are "
        "still read.",
        "GiB, more than 0",
    )
    copies_gib: Annotated[float, Field(gt=0)] = setting(
        1000.0,
        "The most that copies of checkpoints and what is fetched into the home may take together. "
        "What would exceed it is refused (`COPIES_FULL`). Another folder that a person names is "
        "limited by the free space of its disk alone.",
        "GiB, more than 0",
    )


class Settings(Group):
    """The whole file."""

    secrets: SecretsSettings = setting(
        SecretsSettings.model_construct(),
        "The secrets that may leave this machine.",
        "a mapping with allow",
    )
    agent: AgentSettings = setting(
        AgentSettings.model_construct(), "What an agent may do by itself.", "a mapping"
    )
    downloads: Annotated[str, AfterValidator(_folder)] | None = setting(
        None,
        "The folder below which the MCP tool `fetch_files` may write; `downloads` in the home "
        "where this is null. The command `fetch` writes to any folder.",
        "an absolute path, or one that starts with ~/",
    )

    destinations: dict[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")], Destination
    ] = setting(
        {},
        "Destinations of alerts, by name; see [alerts.md](alerts.md). `url_secret` names a secret "
        "(from the environment or `secrets.env`) that holds the URL. `sender: box`, the default, "
        "gives the run's host the URL, so that alerts are sent also while this machine sleeps; "
        "`operator` keeps it here. A command runs here only. `defaults: false` leaves out the "
        "alerts that every destination gets by default.",
        f"a mapping of names to {{kind: {'|'.join(WEB_KINDS)}, url: … or url_secret: NAME, sender: "
        "box|operator, defaults: true|false} or {kind: command, command: [PROGRAM, ARGUMENT…]}",
    )

    max_usd_total: Annotated[float, Field(ge=0)] = setting(
        100.0,
        "The maximum cost of all recorded rented instances together: what was spent, and what open "
        "leases may still cost. Nothing is rented beyond it.",
        "dollars, 0 or more",
    )
    max_usd_h: Annotated[float, Field(ge=0)] = setting(
        25.0, "The maximum price of one rented instance per hour.", "dollars, 0 or more"
    )
    max_hours: Annotated[float, Field(gt=0)] = setting(
        24.0, "The longest lease of an instance.", "hours, more than 0"
    )
    max_volume_days: Annotated[float, Field(gt=0)] = setting(
        30.0, "The longest lease of a network volume.", "days, more than 0"
    )
    agent_may_spend_usd: Annotated[float, Field(ge=0)] = setting(
        0.0,
        "What an agent may spend on rented instances without approval, as the sum of their quotes. "
        "0: every request needs an approval. A lease of more than an hour for what was not "
        "rehearsed always does.",
        "dollars, 0 or more",
    )
    max_code_mib: Annotated[float, Field(gt=0)] = setting(
        256.0,
        "The most that may travel of a program's folder (`framework: script`). Data and outputs "
        "belong on the host, or among what git ignores.",
        "MiB, more than 0",
    )
    idle_minutes: Annotated[float, Field(gt=0)] | None = setting(
        30.0,
        "A rented instance that was idle for so long, and whose runs are mirrored, is released. "
        "null: it is kept until its lease ends.",
        "minutes, more than 0, or null",
    )
    mirror: MirrorSettings = setting(
        MirrorSettings.model_construct(), "What is kept of the files of runs.", "a mapping"
    )
    kaggle: KaggleSettings = setting(
        KaggleSettings.model_construct(), "How kernels are pushed.", "a mapping"
    )
    server: ServerSettings = setting(
        ServerSettings.model_construct(), "The MCP server over HTTP.", "a mapping"
    )
    cloud_urls: dict[CloudName, Annotated[str, AfterValidator(address)]] = setting(
        {},
        "URLs of the providers' APIs that differ from the usual ones: a proxy, or a test.",
        f"a mapping of {', '.join(CLOUD_NAMES)} to addresses",
    )

    def download_root(self, home: Home) -> Path:
        """The folder below which tools may write."""
        return Path(os.path.expanduser(self.downloads)) if self.downloads else home.downloads


def read_settings(home: Home) -> Settings:
    """The settings of a home; the defaults without a file.

    Raises:
        StateError: `SETTINGS_NOT_READABLE`, naming the place and what would be accepted there.
    """
    try:
        text = home.settings.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return _defaults()
    except (OSError, ValueError) as error:
        raise _unreadable(home, f"can't be read: {error}", "Make it readable UTF-8.") from error
    from trainmaster.settings.yaml12 import load_yaml  # heavy, and most homes have no settings

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


@cache
def _defaults() -> Settings:
    return Settings.model_construct()


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
    settings = dict(all_settings())
    for length in range(len(place), 0, -1):
        info = settings.get(".".join(place[:length]))
        if info is not None:
            return f"`{'.'.join(place[:length])}` takes {takes(info)}."
    within = [path for path in settings if place and path.startswith(f"{place[0]}.")]
    return f"There are these settings: {', '.join(within or settings)}."


def _unreadable(home: Home, problem: str, fix: str, field: str | None = None) -> StateError:
    return StateError("SETTINGS_NOT_READABLE", f"{home.settings} {problem}.", fix, field=field)
