"""What clients and the registry read of a release or a checkout: commands that exist and start the
server that is here, at the version of the package."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
import pytest
import yaml
from mcp import Client, StdioServerParameters

from scripts.manifests import (
    SECRETS,
    as_json,
    gemini_extension,
    lacking,
    registry_name,
    server_json,
    write_bundle,
)
from trainer_runtime import __version__
from trainmaster.backends.kaggle.credentials import TOKEN
from trainmaster.cli.command_table import LISTED
from trainmaster.settings.clouds import KEY_NAMES
from trainmaster.store.secret_values import HF_TOKEN

_ROOT = Path(__file__).resolve().parents[2]
_SCHEMAS = _ROOT / "tests" / "support" / "docs" / "schemas"
_URL = "https://github.com/somebody/trainmaster"
_COMMANDS = {listed.word for listed in LISTED}
# The libraries that the bundle's host would have installed: those of this Python.
_LIBRARIES = Path(yaml.__file__).resolve().parents[1]


def read(name: str) -> Any:
    return json.loads((_ROOT / name).read_text())


def fits(document: Any, schema: str) -> None:
    from jsonschema import Draft7Validator

    Draft7Validator(json.loads((_SCHEMAS / f"{schema}.json").read_text())).validate(document)


def starts(command: str, arguments: list[str]) -> None:
    """A client's words start this server."""
    *_, program, word = [command, *arguments]
    assert (command, program) == ("uvx", "trainmaster")
    assert word in _COMMANDS


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A checkout that says where it is published."""
    root = tmp_path / "published"
    root.mkdir()
    text = (_ROOT / "pyproject.toml").read_text()
    urls = f'[project.urls]\nRepository = "{_URL}"\n'
    (root / "pyproject.toml").write_text(f"{text}\n{urls}")
    (root / "README.md").write_text(f"<!-- mcp-name: {registry_name(_URL)} -->\n")
    return root


def test_the_plugin_has_the_version_of_the_release_and_starts_the_server() -> None:
    plugin = read(".claude-plugin/plugin.json")
    assert plugin["version"] == __version__
    server = plugin["mcpServers"]["trainmaster"]
    starts(server["command"], server["args"])


def test_monitors_have_the_fields_of_the_format_and_run_a_command_that_exists() -> None:
    for monitor in read("monitors/monitors.json"):
        assert set(monitor) == {"name", "command", "description", "when"}
        assert monitor["when"] == "always"
        program, package, command, *_ = monitor["command"].split()
        assert (program, package) == ("uvx", "trainmaster")
        assert command in _COMMANDS


def test_the_marketplace_offers_the_plugin_of_this_folder() -> None:
    market, plugin = read(".claude-plugin/marketplace.json"), read(".claude-plugin/plugin.json")
    (offered,) = market["plugins"]
    assert (offered["name"], offered["source"]) == (plugin["name"], "./")
    assert market["owner"]["name"]


def test_a_checkout_is_an_extension_of_geminis_cli() -> None:
    assert (_ROOT / "gemini-extension.json").read_text() == as_json(gemini_extension()), (
        "`make docs` writes it"
    )
    extension = read("gemini-extension.json")
    assert extension["version"] == __version__
    server = extension["mcpServers"]["trainmaster"]
    starts(server["command"], server["args"])
    # What the CLI puts in place of this is the checkout, from which uvx installs the package.
    assert server["args"][:2] == ["--from", "${extensionPath}"]


def test_the_registrys_entry_names_package_bundle_repository_and_secrets(published: Path) -> None:
    entry = server_json(published, "trainmaster.mcpb", "0" * 64)
    fits(entry, "server-2025-12-11")
    assert entry["name"] == "io.github.somebody/trainmaster"
    assert entry["repository"] == {"url": _URL, "source": "github"}
    package, bundle = entry["packages"]
    assert {entry["version"], package["version"], bundle["version"]} == {__version__}
    words = [argument["value"] for argument in package["packageArguments"]]
    starts(package["runtimeHint"], [package["identifier"], *words])
    assert bundle["identifier"].startswith(f"{_URL}/releases/download/v{__version__}/")
    variables = {one["name"]: one for one in package["environmentVariables"]}
    assert {name for name, one in variables.items() if one.get("isSecret")} == set(SECRETS)
    assert set(SECRETS) == {*KEY_NAMES.values(), TOKEN, HF_TOKEN}
    assert "OWNER" not in json.dumps(entry)


def test_what_only_the_publisher_knows_is_asked_for_and_never_made_up(published: Path) -> None:
    assert lacking(published) == []
    (published / "README.md").write_text("Trainmaster")
    assert lacking(published)[0].endswith("mcp-name: io.github.somebody/trainmaster")
    shutil.copy(_ROOT / "pyproject.toml", published)
    assert "[project.urls]" in lacking(published)[0]
    assert registry_name("https://code.example.org/somebody/x") == "org.example.code/trainmaster"


def test_the_links_that_install_the_server_start_it_as_the_plugin_does() -> None:
    page = (_ROOT / "docs" / "agents.md").read_text()
    (cursor,) = re.findall(r"cursor://anysphere\.cursor-deeplink/mcp/install\?\S+?(?=`|\s)", page)
    (vscode,) = re.findall(r"vscode:mcp/install\?\S+?(?=`|\s)", page)
    query = parse_qs(urlsplit(cursor).query)
    of_cursor = json.loads(base64.b64decode(query["config"][0]))
    of_vscode = json.loads(unquote(vscode.partition("?")[2]))
    added = re.findall(r"^\s+(claude|codex|gemini) mcp add trainmaster (?:-- )?(.+)$", page, re.M)
    plugin = read(".claude-plugin/plugin.json")["mcpServers"]["trainmaster"]
    assert query["name"] == [of_vscode.pop("name")] == ["trainmaster"]
    assert of_cursor == of_vscode == plugin
    assert {client: words.split() for client, words in added} == {
        client: [plugin["command"], *plugin["args"]] for client in ("claude", "codex", "gemini")
    }


def test_what_the_page_runs_in_the_image_is_in_it() -> None:
    page = (_ROOT / "docs" / "containers.md").read_text()
    lines = re.findall(r"^\$ docker run .+$", page, re.M)
    ran = [line.split(":/data trainmaster", 1)[1].partition("#")[0].split() for line in lines]
    assert [words[:1] for words in ran] == [[], ["trainmaster"], ["trainmaster-keeper"]]
    assert ran[1][1] in _COMMANDS
    assert "bin/trainmaster-keeper" in (_ROOT / "Dockerfile").read_text()


@pytest.mark.engine
def test_the_bundle_is_the_same_twice_and_its_own_command_starts_the_server(
    tmp_path: Path,
) -> None:
    packed = tmp_path / "trainmaster.mcpb"
    write_bundle(_ROOT, packed)
    write_bundle(_ROOT, tmp_path / "again.mcpb")
    assert packed.read_bytes() == (tmp_path / "again.mcpb").read_bytes()
    folder = tmp_path / "bundle"
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    fits(manifest, "mcpb-manifest-0.4")
    assert manifest["version"] == __version__
    assert (folder / manifest["server"]["entry_point"]).is_file()
    assert set(manifest["server"]["mcp_config"]["env"]) == set(SECRETS)
    assert all(one["sensitive"] for one in manifest["user_config"].values())
    offered = anyio.run(tools_of, manifest["server"]["mcp_config"], folder, tmp_path)
    assert offered == {tool["name"] for tool in manifest["tools"]}


async def tools_of(configured: dict[str, Any], folder: Path, beside: Path) -> set[str]:
    """What the server offers that a host starts by a bundle's words, with a key not given."""
    environment = installed(folder, beside / "environment")
    values = dict.fromkeys(configured["env"], "") | {"HF_TOKEN": configured["env"]["HF_TOKEN"]}
    server = StdioServerParameters(
        command=configured["command"],
        args=[word.replace("${__dirname}", str(folder)) for word in configured["args"]],
        env={**os.environ, **environment, **values, "TRAINMASTER_HOME": str(beside / "home")},
    )
    with anyio.fail_after(120):
        async with Client(server, mode="legacy") as client:
            return {tool.name for tool in (await client.list_tools()).tools}


def installed(folder: Path, environment: Path) -> dict[str, str]:
    """uv's environment of the bundle, installed from its files alone but for the libraries."""
    make = [sys.executable, "-m", "venv", "--without-pip", str(environment)]
    subprocess.run(make, check=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    (site / "libraries.pth").write_text(f"{_LIBRARIES}\n")
    python = str(environment / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--no-index", "--force-reinstall", str(folder)], check=True)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"UV_NO_SYNC": "1", "UV_PROJECT_ENVIRONMENT": str(environment), "PATH": programs}
