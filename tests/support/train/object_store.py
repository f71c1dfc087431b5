"""A real S3 API on the loopback (moto's server), one for all tests of a process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from support.backends.tcp_proxy import free_port
from support.runs.running_run import wait_until

_NUMBERS = count(1)
KEYS = {"AWS_ACCESS_KEY_ID": "key-of-the-tests", "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests-0"}


@dataclass
class Bucket:
    """A bucket of its own for a test; `client`: boto3's."""

    endpoint: str
    name: str
    client: Any = field(repr=False)

    @property
    def variables(self) -> dict[str, str]:
        """What an environment needs to ask for it."""
        return {**KEYS, "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": "us-east-1"}

    def put(self, key: str, content: bytes) -> str:
        """Put an object; its ETag."""
        answer = self.client.put_object(Bucket=self.name, Key=key, Body=content)
        return str(answer["ETag"]).strip('"')

    def names(self) -> list[str]:
        listed = self.client.list_objects_v2(Bucket=self.name).get("Contents", [])
        return sorted(item["Key"] for item in listed)

    def get(self, key: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return content

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)


@contextmanager
def serving_s3() -> Iterator[str]:
    """The server's endpoint."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def make_bucket(endpoint: str) -> Bucket:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )
    name = f"bucket-{os.getpid()}-{next(_NUMBERS)}"
    client.create_bucket(Bucket=name)
    return Bucket(endpoint, name, client)


@contextmanager
def refusing_s3() -> Iterator[str]:
    """The endpoint of a server that knows no keys at all: it refuses each request."""
    port = free_port("127.0.0.1")
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: _answers(port), "the server answers", 60.0)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with serving_s3() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(s3_endpoint: str) -> Bucket:
    """An empty bucket."""
    return make_bucket(s3_endpoint)
