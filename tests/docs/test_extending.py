"""docs/extending.md: each recipe, followed to the letter in a copy, gives what it promises."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args

import pytest
from support.docs.recipe_copy import RecipeCopy
from support.providers.customer import SITES

from trainer_runtime.core.alerts.destination_kinds import KINDS, KindName
from trainer_runtime.core.diagnosis.detectors.detector_set import CODES
from trainer_runtime.core.diagnosis.remedies import REMEDIES
from trainmaster.settings.clouds import CLOUD_NAMES

_REPOSITORY = Path(__file__).resolve().parents[2]

_SETTINGS_PAGE = "from scripts.pages.settings import reference; print(reference())"


class Receiver:
    """An HTTP server on loopback. `requests`: method, path, key and body of each."""

    def __init__(self, replies: dict[str, Any]) -> None:
        self.requests: list[tuple[str, str, str, bytes]] = []
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                key = self.headers.get("Authorization") or ""
                requests.append((self.command, self.path, key, self.rfile.read(length)))
                body = json.dumps(replies.get(self.path, {})).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815 - the server's own name

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    types = [{"id": "one", "gpu": "NVIDIA H100 80GB", "usd_per_h": 2.5}]
    receiver = Receiver({"/types": {"types": types}})
    yield receiver
    receiver.close()


def test_a_cloud_added_by_the_recipe_offers_its_machines(
    tmp_path: Path, receiver: Receiver
) -> None:
    copy = RecipeCopy(tmp_path, "A cloud")
    copy.check_style()
    assert len(copy.files) == 2
    (copy.home / "settings.yaml").write_text(f"cloud_urls: {{toy: '{receiver.url}'}}\n")
    answer = json.loads(copy.try_it({"TOY_API_KEY": "key-1"}))
    assert "toy:one" in json.dumps(answer)
    assert [(path, key) for _, path, key, _ in receiver.requests] == [("/types", "Bearer key-1")]
    operators = "from trainmaster.settings.secret_names import is_operators as o; print(o('{}'))"
    assert copy.run(["python", "-c", operators.format("TOY_API_KEY")]) == "True\n"
    assert "vast, lambda, toy to addresses" in copy.run(["python", "-c", _SETTINGS_PAGE])


def test_a_dialect_added_by_the_recipe_reads_its_lines(tmp_path: Path) -> None:
    copy = RecipeCopy(tmp_path, "A dialect")
    copy.check_style()
    series = json.loads(copy.try_it())["runs"]["tests/golden/parse/toy.log"]["loss"]
    assert (series["steps"], series["values"]) == ([1, 2], [3.01, 2.51])


def test_a_signature_added_by_the_recipe_is_found_and_explained(tmp_path: Path) -> None:
    copy = RecipeCopy(tmp_path, "A signature")
    copy.check_style()
    (copy.root / "torn.log").write_text("step 1\ntoy.ToyShardError: shard 7 is torn\n")
    (finding,) = json.loads(copy.try_it())["findings"]
    assert finding["code"] == "toy_shard_torn"
    assert finding["explanation"] == "A shard of toy's data is torn."
    assert finding["advice"][0].startswith("Download the shard again")


def test_a_detector_added_by_the_recipe_finds_reports_and_restarts(tmp_path: Path) -> None:
    copy = RecipeCopy(tmp_path, "A detector")
    copy.check_style()
    assert len(copy.files) == 2
    log = copy.root / "jump.log"
    log.write_text("".join(f"step={n} loss=3.{n} lr={0.02 if n > 3 else 1e-3}\n" for n in range(9)))
    (finding,) = json.loads(copy.try_it())["findings"]
    assert (finding["code"], finding["step"]) == ("rate_jump", 4)
    assert finding["evidence"] == ["lr 0.001 before, 0.02 at the onset"]
    rates = "".join(f"step={n} loss=3.{n} lr=0.001\n" for n in range(9))
    log.write_text(rates)
    assert json.loads(copy.try_it())["findings"] == []
    assert "`rate_jump`" in copy.run(["python", "-c", _DIAGNOSIS])


def test_an_alert_destination_added_by_the_recipe_gets_its_own_body(
    tmp_path: Path, receiver: Receiver
) -> None:
    copy = RecipeCopy(tmp_path, "An alert destination")
    copy.check_style()
    assert len(copy.files) == 1
    settings = f"destinations: {{ops: {{kind: toy, url: '{receiver.url}/hook'}}}}\n"
    (copy.home / "settings.yaml").write_text(settings)
    answer = json.loads(copy.try_it())
    assert (answer["kind"], answer["sent"]) == ("toy", True)
    ((method, path, _, body),) = receiver.requests
    assert (method, path) == ("POST", "/hook")
    posted = json.loads(body)
    assert posted["msgtype"] == "m.text" and "This is a test of the destination" in posted["body"]
    assert "webhook|slack|discord|toy" in copy.run(["python", "-c", _SETTINGS_PAGE])


def test_an_mcp_tool_added_by_the_recipe_is_listed_and_answers(tmp_path: Path) -> None:
    copy = RecipeCopy(tmp_path, "An MCP tool")
    copy.check_style()
    assert len(copy.files) == 3
    assert "### `count_runs`" in copy.try_it()
    assert json.loads(copy.run(["python", "-c", _CALL])) == {"runs": 0}


def test_each_provider_has_a_stand_in() -> None:
    assert set(SITES) == set(CLOUD_NAMES)


def test_each_kind_of_destination_has_its_record_and_its_row_in_the_docs() -> None:
    assert set(KINDS) == set(get_args(KindName))
    page = (_REPOSITORY / "docs/alerts.md").read_text()
    assert [name for name in KINDS if f"| `{name}` |" not in page] == []


def test_detectors_name_remedies_that_exist() -> None:
    assert {name for code in CODES.values() for name in code.remedies} <= set(REMEDIES)


_DIAGNOSIS = "from scripts.pages.diagnosis import reference; print(reference())"
_CALL = """\
import asyncio, json, os
from mcp import Client
from trainmaster.mcp import build_server

async def call():
    async with Client(build_server(dict(os.environ))) as client:
        print(json.dumps((await client.call_tool("count_runs", {})).structured_content))

asyncio.run(call())
"""
