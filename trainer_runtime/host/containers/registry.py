"""Asks an image's registry whether it has it, by the engine's own program; nothing is pulled."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, Fields, decode_fields
from trainer_runtime.host.containers.engine import Engine, ask_engine

# A pull that would fail again in the same way; the rest may be the network's.
FINAL = re.compile(
    r"manifest unknown|manifest_unknown|not found|denied|unauthorized|invalid reference|"
    r"short-name|does not exist|no such (image|manifest)|no matching manifest|repository name",
    re.IGNORECASE,
)
_WITHIN_S = 20.0
_HUB = "docker.io"


@dataclass(frozen=True, slots=True)
class Refused:
    """What a registry says instead of an image's manifest. `final`: so a pull would end, too."""

    words: str
    final: bool


def refused_by_registry(engine: Engine, full: str, within_s: float = _WITHIN_S) -> Refused | None:
    """Why the image of this full name can't be pulled, as far as its registry says; None where it
    has its manifest."""
    domain = full.partition("/")[0]
    # Docker's program asks by itself: how its daemon would, it does not know.
    settings = _daemon_settings(engine) if _is_docker(engine) else None
    is_insecure = settings is not None and _is_insecure(domain, settings)
    options = ["--insecure"] if is_insecure else []
    answer = ask_engine(engine.program, "manifest", "inspect", *options, full, within_s=within_s)
    if answer.code == 0:
        return None
    asks_as_it_pulls = not _is_docker(engine) or (
        settings is not None and not (domain == _HUB and settings.texts("Mirrors"))
    )
    return Refused(answer.problem, asks_as_it_pulls and FINAL.search(answer.problem) is not None)


def _is_docker(engine: Engine) -> bool:
    return Path(engine.program).name != "podman"


def _daemon_settings(engine: Engine) -> Fields | None:
    """How Docker's daemon reaches registries; None for an engine behind Docker's program that does
    not say so, such as Podman's service."""
    if engine.kind != "docker":
        return None
    answer = ask_engine(engine.program, "info", "--format", "{{json .RegistryConfig}}")
    try:
        return decode_fields(answer.output, "docker info", max_bytes=MAX_DOCUMENT_BYTES)
    except ValueError:
        return None


def _is_insecure(domain: str, settings: Fields) -> bool:
    """Whether the daemon would also speak HTTP with this registry, and accept any certificate: as
    Docker's `isSecureIndex` finds it."""
    indexes = settings.values.get("IndexConfigs")
    index = indexes.get(domain) if isinstance(indexes, dict) else None
    if isinstance(index, dict):
        return index.get("Secure") is False
    networks = [ipaddress.ip_network(text) for text in settings.texts("InsecureRegistryCIDRs")]
    host = domain.rpartition(":")[0] or domain
    try:
        addresses = {address[4][0] for address in socket.getaddrinfo(host.strip("[]"), None)}
    except OSError:
        return False
    return any(ipaddress.ip_address(text) in network for text in addresses for network in networks)
