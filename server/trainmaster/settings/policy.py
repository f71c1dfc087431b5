"""What the caller of a service may read, send, reach and run without a person's approval.

A person at a terminal is bound by nothing here. An agent, who calls through an MCP server, is bound
by the settings, which no tool can change.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trainer_runtime.core.files.protected import home_around, names_credentials
from trainer_runtime.core.inputs.object_store import BEGINNINGS as STORES
from trainer_runtime.core.inputs.object_store import StoreAddress
from trainmaster.errors.errors import PolicyError
from trainmaster.home.paths import Home
from trainmaster.settings.protected_places import (
    is_of_system,
    lies_in,
    protected_folders,
    protected_on_host,
)

if TYPE_CHECKING:
    from trainmaster.settings.settings import Settings

# The services that our own code and the frameworks' loggers ask by default, with what is below.
_PUBLIC = ("huggingface.co", "hf.co", "wandb.ai", "neptune.ai", "comet.com", "clear.ml")
# Variables by which a person leads those to other servers.
_ENDPOINT_VARIABLES = (
    "HF_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "STORAGE_EMULATOR_HOST",
    "WANDB_BASE_URL",
    "MLFLOW_TRACKING_URI",
    "COMET_URL_OVERRIDE",
    "CLEARML_API_HOST",
)
_ADDRESS = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?"
    r"(?P<server>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])?(?::[0-9]{1,5})?"
    r"(?:[/?#][!-\[\]-~]*)?"
)
_OWN_FOLDERS = ("mirror", "downloads", "plots", "stacks", "local/runs", "debug/runs")


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits of one caller; without `bound` there are none.

    `folders` are real paths of what may be read and sent, `protected` of what may never be.
    `hosts`: None for every host on record. `secrets`: the hosts of those that are bound to some.
    `endpoints`: names of servers, with the port where it is not HTTPS's, and buckets. `reads_only`:
    nothing that a spec names is run, and no approval is asked for.
    """

    bound: bool = False
    reads_only: bool = False
    home: Home | None = None
    folders: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    user_home: Path = Path("/")
    hosts: frozenset[str] | None = None
    secrets: Mapping[str, frozenset[str]] = field(default_factory=dict)
    endpoints: frozenset[str] = frozenset()

    def check_readable(self, path: str | Path, place: str | None = None) -> Path:
        """The real path of a file or folder of this machine that may be read and sent, whether it
        exists or not; `place`: the field or argument that names it.

        Raises:
            PolicyError: `POLICY_FILE`.
        """
        if "\0" in str(path):
            return Path(path)  # opening it fails
        real = Path(os.path.realpath(path))
        if not self.bound:
            return real
        named = Path(os.path.abspath(path))
        by_name = any(
            names_credentials(candidate) or is_of_system(candidate) for candidate in (named, real)
        )
        if by_name or self._is_protected(real) or self._holds_protected(real):
            raise self._protected(named, place)
        if not lies_in(real, self.folders):
            raise self._outside(named, real, place)
        return real

    def check_folder(self, path: str | Path, place: str | None = None) -> Path:
        """The same for a folder whose links are followed, each of which must lead to such a place.

        Raises:
            PolicyError: `POLICY_FILE`.
        """
        if not self.bound:
            return self.check_readable(path, place)
        outside: PolicyError | None = None
        for entry in (Path(path), *_links_and_credentials(Path(path))):
            try:
                self.check_readable(entry, place)
            except PolicyError as error:
                if error.question is None:  # nobody can allow this one
                    raise
                outside = outside or error
        if outside is not None:
            raise outside
        return self.check_readable(path, place)

    def check_on_host(self, path: str, place: str | None = None) -> None:
        """Check a path of another machine by its name.

        Raises:
            PolicyError: `POLICY_FILE`, it is one of keys, credentials or the system.
        """
        if self.bound and protected_on_host(path):
            raise self._protected(Path(path), place)

    def check_host(self, host: str, place: str | None = None) -> None:
        """Raises:
        PolicyError: `POLICY_HOST`, an agent may not launch there.
        """
        if self.bound and self.hosts is not None and host not in self.hosts:
            raise self._beyond(
                "POLICY_HOST",
                f"An agent may use {', '.join(sorted(self.hosts)) or 'no host'}, and not {host}.",
                f"agent: {{hosts: [{', '.join(sorted({*self.hosts, host}))}]}}",
                place,
                f"use the host {host}",
            )

    def check_secret(self, name: str, host: str, *, is_agents: bool) -> None:
        """Check that a secret may go to a host; `is_agents`: an agent added that host.

        Raises:
            PolicyError: `POLICY_SECRET`; where the settings bind the secret to other hosts, no
                approval counts.
        """
        hosts = self.secrets.get(name)
        if not self.bound or (host in hosts if hosts is not None else not is_agents):
            return
        why = "the settings bind it to other hosts" if hosts is not None else "an agent added it"
        raise self._beyond(
            "POLICY_SECRET",
            f"An agent may not send the secret {name} to {host}: {why}.",
            f"agent: {{secrets: {{{name}: [{', '.join(sorted({*(hosts or ()), host}))}]}}}}",
            "secrets",
            None if hosts is not None else f"send the secret {name} to {host}",
        )

    def check_endpoint(self, url: str, place: str | None = None, *, loopback: bool = False) -> None:
        """Check an address that is asked; `loopback`: that of the same machine may be.

        Raises:
            PolicyError: `POLICY_ENDPOINT`.
        """
        if not self.bound:
            return
        if not _is_plain(url):
            raise self._ambiguous(url, place)
        server, with_port = _server_of(url)
        if not server or (loopback and _is_loopback(server)):
            return
        is_public = any(server == domain or server.endswith(f".{domain}") for domain in _PUBLIC)
        if not is_public and with_port not in self.endpoints:
            raise self._beyond(
                "POLICY_ENDPOINT",
                f"An agent may not have {shown_path(with_port)} asked.",
                f"agent: {{endpoints: [{shown_path(url)}]}}",
                place,
                f"have {shown_path(with_port)} asked",
            )

    def check_bucket(self, address: StoreAddress, place: str) -> None:
        """Check a bucket that is read from or written to.

        Raises:
            PolicyError: `POLICY_ENDPOINT`.
        """
        bucket = f"{address.scheme}://{address.bucket}"
        if self.bound and bucket not in self.endpoints:
            raise self._beyond(
                "POLICY_ENDPOINT",
                f"An agent may not use {bucket}.",
                f"agent: {{endpoints: [{bucket}]}}",
                place,
                f"use {bucket}",
            )

    def program_error(self, message: str, fix: str, question: str, place: str) -> PolicyError:
        """The refusal of code that a spec brings to this machine."""
        return self._refusal("POLICY_PROGRAM", message, fix, place, question)

    def _is_protected(self, path: Path) -> bool:
        if lies_in(path, self.protected):
            return True
        own = None if self.home is None else _real(self.home.root)
        if own is not None and path.is_relative_to(own):
            return not lies_in(path, [own / name for name in _OWN_FOLDERS])
        return home_around(path) is not None

    def _holds_protected(self, path: Path) -> bool:
        """Whether a folder has something protected below it."""
        below = [self.user_home, *self.protected]
        below += [] if self.home is None else [_real(self.home.root)]
        return any(protected.is_relative_to(path) for protected in below)

    def _protected(self, path: Path, place: str | None) -> PolicyError:
        return self._refusal(
            "POLICY_FILE",
            f"{shown_path(path)} is protected, or holds what is: keys, credentials, settings, "
            "files of the system.",
            "Name another file; no setting and no approval opens this one to an agent.",
            place,
            None,
        )

    def _outside(self, path: Path, real: Path, place: str | None) -> PolicyError:
        leads = "" if real == path else f" leads to {shown_path(real)}, which"
        return self._beyond(
            "POLICY_FILE",
            f"{shown_path(path)}{leads} is outside the folders that an agent may read and send.",
            f"agent: {{folders: [{shown_path(real)}]}}",
            place,
            f"read and send {shown_path(real)}",
        )

    def _ambiguous(self, url: str, place: str | None) -> PolicyError:
        return self._refusal(
            "POLICY_ENDPOINT",
            f"{shown_path(url)} is not a plain address: programs differ in which server it names.",
            "Write it as https://server:port/path, in ASCII, without user names, spaces and "
            "backslashes.",
            place,
            None,
        )

    def _beyond(
        self, code: str, message: str, setting: str, place: str | None, question: str | None
    ) -> PolicyError:
        where = "the settings" if self.home is None else str(self.home.settings)
        fix = f"Only the user can allow it: `{setting}` in {where}."
        if question is not None and not self.reads_only:
            fix += " Tools that act (launch, attach, resume) ask the user for a single approval."
        return self._refusal(code, message, fix, place, question)

    def _refusal(
        self, code: str, message: str, fix: str, place: str | None, question: str | None
    ) -> PolicyError:
        error = PolicyError(code, message, fix, field=place)
        error.question = None if self.reads_only else question
        return error


UNBOUND = Policy()


def policy_of_agent(
    home: Home,
    environment: Mapping[str, str],
    working_folder: Path,
    *,
    reads_only: bool = False,
) -> Policy:
    """The limits of an agent who calls through a server with this environment and folder.

    The working folder counts unless it is the user's home or holds it: servers are also started in
    `/` or there.

    Raises:
        StateError: `SETTINGS_NOT_READABLE`.
    """
    from trainmaster.settings.settings import read_settings  # an agent alone is limited by them

    settings = read_settings(home)
    user_home = _real(environment.get("HOME") or "~")
    own = [_real(home.root / name) for name in _OWN_FOLDERS]
    own_folders = [_real(folder) for folder in settings.agent.folders]
    here = _real(working_folder)
    at_work = [] if user_home.is_relative_to(here) else [here]
    allowed = settings.agent.hosts
    return Policy(
        bound=True,
        reads_only=reads_only,
        home=home,
        folders=(*at_work, *own, _real(settings.download_root(home)), *own_folders),
        protected=protected_folders(user_home, environment),
        user_home=user_home,
        hosts=None if allowed is None else frozenset(allowed),
        secrets={name: frozenset(hosts) for name, hosts in settings.agent.secrets.items()},
        endpoints=_endpoints(settings, environment),
    )


def agent_policies(
    home: Home, environment: Mapping[str, str], *, reads_only: bool
) -> Callable[[], Policy]:
    """The agent's policy as it is now: settings are read again once their file has changed."""
    newest: list[tuple[object, Policy]] = []

    def current() -> Policy:
        try:
            folder = Path.cwd()
        except OSError:  # it was removed
            folder = Path("/")
        stamp = (_stamp(home.settings), folder)
        if not newest or newest[-1][0] != stamp:
            policy = policy_of_agent(home, environment, folder, reads_only=reads_only)
            newest[:] = [(stamp, policy)]
        return newest[-1][1]

    return current


def _stamp(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _endpoints(settings: Settings, environment: Mapping[str, str]) -> frozenset[str]:
    own = [value for name in _ENDPOINT_VARIABLES if (value := environment.get(name))]
    named = [url.rstrip("/") for url in settings.agent.endpoints]
    buckets = {url for url in named if url.startswith(STORES)}
    servers = [_server_of(url) for url in (*named, *own) if url not in buckets]
    return frozenset(buckets.union(with_port for _, with_port in servers if with_port))


def _links_and_credentials(folder: Path) -> Iterator[Path]:
    """What of a folder may lead out of it, or is protected by its name."""
    for inside, folders, files in os.walk(folder):
        for entry in (Path(inside, name) for name in (*folders, *files)):
            if os.path.islink(entry) or names_credentials(entry):
                yield entry


def _is_plain(url: str) -> bool:
    """Whether every program reads the same server, or none, from a URL or a server's name."""
    parts = _ADDRESS.fullmatch(url)
    if parts is None:
        return False
    if parts["server"]:
        return True
    scheme = (parts["scheme"] or "").lower()
    return scheme not in ("http", "https") and (bool(scheme) or not url.startswith(("//", ":")))


def _server_of(url: str) -> tuple[str, str]:
    """A URL's server, and that with its port where it is not HTTPS's; empty where none is named."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        server, port = (parts.hostname or "").rstrip(".").lower(), parts.port
    except ValueError:
        return url.lower(), url.lower()
    port = port or (80 if parts.scheme == "http" else None)
    return server, server if port in (None, 443) else f"{server}:{port}"


def _is_loopback(server: str) -> bool:
    try:
        return server == "localhost" or ipaddress.ip_address(server).is_loopback
    except ValueError:
        return False


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(os.path.expanduser(path)))


def shown_path(path: object) -> str:
    """A path, or another text of an agent's, for a question or an error."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(path))[:300]
