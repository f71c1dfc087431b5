"""What clients and registries read, made from `pyproject.toml` and the product's own lists.

`gemini_extension` is committed, since the CLI of Gemini installs a checkout; `make docs` writes it.
`server_json` and the bundle (`.mcpb`) are made by `make release`: both name the release.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tomllib

from trainmaster.mcp.toolsets import TOOLSETS
from trainmaster.settings.clouds import KEY_NAMES

ROOT = Path(__file__).parents[1]
# Variables of the server that hold secrets, and what for.
SECRETS = {
    **{name: f"API key of {provider}, to rent instances" for provider, name in KEY_NAMES.items()},
    "KAGGLE_API_TOKEN": "Kaggle's API token, for trainings there",
    "HF_TOKEN": "Hugging Face token, for private models and data",
}
# At most 100 characters, by the registry's schema.
_SHORT = (
    "Plan, launch, watch, diagnose and recover LLM trainings on SSH hosts, Kaggle and rented GPUs."
)
_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
# The bundle's own file: hosts of type `uv` run it without arguments.
_ENTRY = "mcp_server.py"
_STARTS = '''\
"""Starts the MCP server of this bundle. Hosts leave the name of a key that was not given."""

import os
import sys

from trainmaster.__main__ import main

for name, value in [*os.environ.items()]:
    if value.startswith("${user_config."):
        del os.environ[name]
sys.argv = [sys.argv[0], "mcp", *sys.argv[1:]]
main()
'''
_PACKED = ("server", "trainer_runtime", "templates", "skills")
_PACKED_FILES = ("pyproject.toml", "README.md", "LICENSE")
# The first year that a zip archive can hold.
_EARLIEST = (1980, 1, 1, 0, 0, 0)


def project(root: Path = ROOT) -> dict[str, Any]:
    """The table [project] of `pyproject.toml`."""
    table: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return table


def lacking(root: Path) -> list[str]:
    """What a release still needs that only its publisher knows; empty where it has all of it."""
    url = repository(root)
    if url is None:
        return [
            "pyproject.toml names no repository. Add, with the address where the release is "
            'published:\n  [project.urls]\n  Repository = "https://HOST/OWNER/NAME"'
        ]
    line = f"mcp-name: {registry_name(url)}"
    if line not in (root / "README.md").read_text():
        return [f"README.md lacks the line by which the registry checks the package:\n  {line}"]
    return []


def repository(root: Path = ROOT) -> str | None:
    """The address of the repository, as `pyproject.toml` names it."""
    url = project(root).get("urls", {}).get("Repository")
    return None if url is None else str(url).removesuffix(".git").rstrip("/")


def registry_name(url: str) -> str:
    """The server's name in the registry: an account of GitHub, or a domain, turned around."""
    parts = urlsplit(url)
    domain = ".".join(reversed((parts.hostname or "").split(".")))
    owner = parts.path.strip("/").partition("/")[0]
    return f"io.github.{owner}/trainmaster" if domain == "com.github" else f"{domain}/trainmaster"


def server_json(root: Path, bundle: str, digest: str) -> dict[str, Any]:
    """The registry's entry: the package, and the bundle as the release `v<version>` has it.

    `digest`: the bundle's sha256. The repository is named (`lacking`).
    """
    url, version = repository(root), project(root)["version"]
    assert url is not None
    stdio = {"type": "stdio"}
    variables = [
        {
            "name": "TRAINMASTER_HOME",
            "description": "Folder of all local data; the platform's folder for user data if unset",
            "format": "filepath",
            "isRequired": False,
        },
        *(
            {"name": name, "description": what, "isRequired": False, "isSecret": True}
            for name, what in SECRETS.items()
        ),
    ]
    package = {
        "registryType": "pypi",
        "identifier": "trainmaster",
        "version": version,
        "runtimeHint": "uvx",
        "transport": stdio,
        "packageArguments": [{"type": "positional", "value": "mcp"}],
        "environmentVariables": variables,
    }
    packed = {
        "registryType": "mcpb",
        "identifier": f"{url}/releases/download/v{version}/{bundle}",
        "version": version,
        "fileSha256": digest,
        "transport": stdio,
    }
    return {
        "$schema": _SCHEMA,
        "name": registry_name(url),
        "title": "Trainmaster",
        "description": _SHORT,
        "version": version,
        "repository": {
            "url": url,
            "source": (urlsplit(url).hostname or "").removesuffix(".com"),
        },
        "packages": [package, packed],
    }


def gemini_extension(root: Path = ROOT) -> dict[str, Any]:
    """The extension that a checkout is for the CLI of Gemini; it finds `skills/` by itself."""
    return {
        "name": "trainmaster",
        "version": project(root)["version"],
        "description": _SHORT,
        "mcpServers": {
            "trainmaster": {
                "command": "uvx",
                "args": ["--from", "${extensionPath}", "trainmaster", "mcp"],
            }
        },
    }


def bundle_manifest(root: Path = ROOT) -> dict[str, Any]:
    """The manifest of the bundle: a host with uv installs what `pyproject.toml` beside it names."""
    about, url = project(root), repository(root)
    keys = {name.lower(): (name, what) for name, what in SECRETS.items()}
    started = ["run", "--project", "${__dirname}", f"${{__dirname}}/{_ENTRY}"]
    return {
        "manifest_version": "0.4",
        "name": about["name"],
        "display_name": "Trainmaster",
        "version": about["version"],
        "description": about["description"],
        "author": {"name": "Trainmaster"},
        **({"repository": {"type": "git", "url": url}} if url else {}),
        "license": about["license"],
        "keywords": about["keywords"],
        "server": {
            "type": "uv",
            "entry_point": _ENTRY,
            "mcp_config": {
                "command": "uv",
                "args": started,
                "env": {name: f"${{user_config.{key}}}" for key, (name, _) in keys.items()},
            },
        },
        "compatibility": {
            "platforms": ["darwin", "linux"],
            "runtimes": {"python": about["requires-python"]},
        },
        "user_config": {
            key: {
                "type": "string",
                "title": name,
                "description": what,
                "sensitive": True,
                "required": False,
                "default": "",
            }
            for key, (name, what) in keys.items()
        },
        "tools": [
            {"name": tool.name, "description": tool.title}
            for tools in TOOLSETS.values()
            for tool in tools
        ],
    }


def write_bundle(root: Path, path: Path) -> None:
    """The bundle of a checkout, byte for byte the same for the same files."""
    manifest = json.dumps(bundle_manifest(root), indent=1) + "\n"
    made = {"manifest.json": manifest.encode(), _ENTRY: _STARTS.encode()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted({**made, **dict(_files(root))}.items()):
            archive.writestr(_entry(name), content)


def write_gemini_extension() -> None:
    """Write the committed file."""
    (ROOT / "gemini-extension.json").write_text(as_json(gemini_extension()))


def as_json(document: Mapping[str, Any]) -> str:
    """As committed and released."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _files(root: Path) -> Iterator[tuple[str, bytes]]:
    """What the package is built from."""
    for path in (*(root / name for name in _PACKED_FILES), *_below(root)):
        yield path.relative_to(root).as_posix(), path.read_bytes()


def _below(root: Path) -> Iterator[Path]:
    for folder in _PACKED:
        for path in (root / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EARLIEST)
    entry.external_attr = 0o100644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
