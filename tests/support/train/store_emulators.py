"""Emulators of Google's and Azure's object stores, each on the loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.backends.tcp_proxy import free_port
from support.runs.running_run import wait_until

# Installed by npm into a folder of the environment when it is first used.
_AZURITE = "azurite@3.37.0"
_AZURITE_FOLDER = Path(sys.prefix) / "azurite"
# The account and key that every Azurite has, by its documentation.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def google_storage(bucket: str) -> Iterator[Mapping[str, str]]:
    """The variables by which a bucket is asked for."""
    port = free_port("127.0.0.1")
    command = [sys.executable, "-c", _GOOGLE, str(port)]
    with _running(command, port):
        endpoint = f"http://127.0.0.1:{port}"
        request = urllib.request.Request(
            f"{endpoint}/storage/v1/b?project=tests",
            data=f'{{"name": "{bucket}"}}'.encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()
        yield {"STORAGE_EMULATOR_HOST": endpoint}


_GOOGLE = """
import sys
from gcp_storage_emulator.server import create_server
create_server("127.0.0.1", int(sys.argv[1]), in_memory=True).run()
"""


@contextmanager
def azure_storage(container: str) -> Iterator[Mapping[str, str]]:
    """The variables by which a container is asked for."""
    program = _AZURITE_FOLDER / "node_modules/.bin/azurite-blob"
    if not program.exists():
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(_AZURITE_FOLDER)]
        subprocess.run([*install, _AZURITE], check=True, capture_output=True)
    port = free_port("127.0.0.1")
    command = [str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command += ["--inMemoryPersistence", "--skipApiVersionCheck"]
    with _running(command, port):
        endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};"
            f"BlobEndpoint={endpoint};"
        )
        from azure.storage.blob import BlobServiceClient

        with BlobServiceClient.from_connection_string(connection) as client:
            client.create_container(container)
        yield {"AZURE_STORAGE_CONNECTION_STRING": connection}


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ)
    )
    try:
        wait_until(lambda: _answers(port), "the emulator answers", 60.0)
        yield
    finally:
        process.kill()  # Azurite waits for clients that keep their connections
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
