"""The board over HTTP: who may read it, what it answers, and that it only reads."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers
from support.board.planted_board import HOSTILE, RUNNING, plant_board, wrote
from support.core.journal_records import attempt_starting, kept, metric, saved, started
from support.runs.planted_journal import PlantedJournal
from support.runs.running_run import run_async, wait_until

from trainmaster.board.access import Access, new_token
from trainmaster.board.app import BoardApp
from trainmaster.board.serve import Board, Listening
from trainmaster.errors.errors import UsageError
from trainmaster.sync.workspace import Workspace, open_workspace


class Reader:
    """Asks a board of a planted home, in this process."""

    def __init__(self, workspace: Workspace) -> None:
        self.token = new_token()
        self.workspace = workspace
        self.app = BoardApp(workspace, Access(self.token))

    def get(self, path: str, *, method: str = "GET", **headers: str) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.app.asgi)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as one:
                given = {"authorization": f"Bearer {self.token}", **headers}
                return await one.request(method, path, headers=given)

        return run_async(asked)

    def json(self, path: str) -> Any:
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    home = tmp_path_factory.mktemp("board")
    with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
        plant_board(workspace)
        yield Reader(workspace)


def files_of(home: Path) -> dict[str, bytes]:
    """What is in a home, but for what its databases share among their readers."""
    found = [path for path in home.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    return {str(path): path.read_bytes() for path in found}


@pytest.mark.attack
def test_a_reader_without_the_token_gets_the_page_and_no_data(reader: Reader) -> None:
    for authorization in ("", "Bearer ", "Bearer wrong", f"Bearer {reader.token}x", "Basic x"):
        refused = reader.get("/api/board", authorization=authorization)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "TOKEN_REFUSED")
    page = reader.get("/", authorization="")
    assert page.status_code == 200 and "sft-qwen" not in page.text
    assert reader.token not in page.text


@pytest.mark.parametrize(
    ("host", "is_refused"),
    [
        ("127.0.0.1:8420", False),
        ("localhost", False),
        ("[::1]:9", False),
        ("LOCALHOST:80", False),
        ("attacker.example:8420", True),
        ("192.168.1.7:8420", True),
        ("127.0.0.1.attacker.example", True),
        ("0.0.0.0", True),
        ("", True),
    ],
)
@pytest.mark.attack
def test_a_name_that_leads_here_by_rebinding_is_refused(
    reader: Reader, host: str, is_refused: bool
) -> None:
    for path in ("/", "/api/board", "/assets/main.js"):
        answer = reader.get(path, host=host)
        assert (answer.status_code == 403) == is_refused
        if is_refused:
            assert answer.json()["error"]["code"] == "ORIGIN_REFUSED"


def test_beyond_loopback_numbers_and_given_names_lead_here_and_no_others() -> None:
    access = Access("t", ("Box.example",), beyond_loopback=True)
    refused = {
        host: access.refusal("/", Headers({"host": host})) is not None
        for host in ("10.0.0.7:8420", "box.example:1", "other.example", "[fd00::7]:1")
    }
    assert list(refused.values()) == [False, False, True, False]


@pytest.mark.attack
def test_each_answer_forbids_foreign_code_and_referrers(
    reader: Reader,
) -> None:
    for path in ("/", "/assets/main.js", "/api/board", "/nothing"):
        headers = reader.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"


def test_no_address_acts(reader: Reader) -> None:
    before = files_of(reader.workspace.home.root)
    data = ("run", "curves", "comparison")
    for path in ("/", "/api/board", *(f"/api/{one}?run=sft-qwen" for one in data)):
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert reader.get(path, method=method).status_code == 405
        assert reader.get(path).status_code == 200
    assert reader.get("/api/machines").status_code == 200
    assert files_of(reader.workspace.home.root) == before


def test_all_runs_come_with_what_needs_attention(reader: Reader) -> None:
    board = reader.json("/api/board")
    assert board["attention"][0] == "sft-qwen failed: cuda_oom 0a0a0a0a"
    states = {run["name"]: (run["state"], run["step"]) for run in board["runs"]}
    assert states["sft-qwen"] == ("failed", 120)
    assert states["tiny-stories"] == ("completed", 400)
    assert board["usd_per_h"] == 2.99


def test_a_run_comes_with_findings_and_patches_that_can_be_applied_now(reader: Reader) -> None:
    failed = reader.json("/api/run?run=sft-qwen")
    (finding,) = failed["diagnosis"]["findings"]
    assert HOSTILE in finding["evidence"]
    (patch,) = failed["patches"]
    assert patch["next_step"].endswith(
        "trainmaster resume sft-qwen-abcdef --apply 0a0a0a0a:halve_micro_batch`"
    )
    assert reader.json("/api/run?run=gpt2-124m")["patches"] == []


def test_an_attempt_under_way_says_where_it_began(reader: Reader) -> None:
    first, second = reader.json("/api/run?run=gpt2-124m")["status"]["attempts"]
    assert (first["last_step"], second["started_at_step"]) == (900, 800)


def test_a_run_comes_with_its_configuration_and_what_its_spec_names(reader: Reader) -> None:
    settings = {one["path"]: one for one in reader.json("/api/run?run=gpt2-124m")["settings"]}
    assert settings["optimizer.lr"] == {"path": "optimizer.lr", "value": 6e-4, "chosen": True}
    assert settings["data.sources[0].format"]["value"] == "shards"
    assert settings["batch.micro_batch"] == {"path": "batch.micro_batch", "value": 12}
    assert not {"run_id", "name", "attempt"} & settings.keys()


@pytest.mark.attack
def test_a_secret_in_a_configuration_is_masked(workspace: Workspace) -> None:
    key = "hf_abcdefghijklmnopqrstuvwxyz0123"
    command = ["python", "train.py", f"--hub-token={key}"]
    PlantedJournal(workspace, "leaky", script={"command": command})
    PlantedJournal(workspace, "other", script={"command": ["python"]})
    reader = Reader(workspace)
    for path in ("/api/run?run=leaky", "/api/comparison?run=leaky&run=other"):
        text = reader.get(path).text
        assert "--hub-token=" in text and key not in text


def test_a_run_comes_with_its_checkpoints_the_newest_first(reader: Reader) -> None:
    run = reader.json("/api/run?run=gpt2-124m")
    newest, *_, oldest = run["checkpoints"]
    assert (newest["step"], newest["tags"], newest["verified"]) == (1600, ["latest", "best"], True)
    assert newest["loss"] == pytest.approx(3.1, abs=0.1)
    assert newest["metrics"] == {"val_loss": pytest.approx(3.11, abs=0.01)}
    assert (oldest["step"], oldest["size_bytes"]) == (200, 1 << 20)
    assert (run["metric"], run["resume_from"]) == ("val_loss", 1600)


def test_checkpoints_that_are_not_read_back_or_were_left_behind_say_so(
    workspace: Workspace,
) -> None:
    run = PlantedJournal(workspace, "rewound")
    run.write(*RUNNING)
    first = [started(0, 100), metric(20), *kept(20), metric(40), *kept(40)]
    run.write(*first, name="attempts/1/events.jsonl")
    run.write(attempt_starting(2, why="loss_nan"), ("attempt_running", {"attempt": 2}))
    run.write(started(20, 100), metric(24, 2.25), saved(30), name="attempts/2/events.jsonl")
    rows = {
        row["step"]: row for row in Reader(workspace).json("/api/run?run=rewound")["checkpoints"]
    }
    assert rows[20]["verified"] is True and rows[20]["loss"] == 2.5
    assert rows[40]["superseded"] is True and "loss" not in rows[40]
    assert rows[30]["verified"] is None and rows[30]["loss"] == 2.25


def test_samples_come_by_step_as_their_newest_attempt_wrote_them(workspace: Workspace) -> None:
    run = PlantedJournal(workspace, "writer")
    run.write(*RUNNING)
    first = [wrote(20, "old", "A"), wrote(20, "old", "B"), wrote(40, "left behind")]
    run.write(started(0, 100), *first, name="attempts/1/events.jsonl")
    run.write(attempt_starting(2, why="killed"), ("attempt_running", {"attempt": 2}))
    odd = ("eval.samples", {"step": 25, "prompt": {"a": 1}, "text": 7, "reason": "no tokenizer"})
    again = [wrote(20, "first\nline", "A"), wrote(20, f"{HOSTILE}\x1b[31m", "B"), odd]
    run.write(started(10, 100), *again, name="attempts/2/events.jsonl")
    samples = Reader(workspace).json("/api/run?run=writer")["samples"]
    shown = [(one["step"], one["untrusted_prompt"], one["untrusted_text"]) for one in samples]
    assert shown == [(25, "", ""), (20, "A", "first\nline"), (20, "B", HOSTILE)]
    assert samples[0]["untrusted_detail"] == "no tokenizer"
    assert {one["attempt"] for one in samples} == {2}


def test_runs_are_compared_by_their_last_and_best_values_and_by_what_differs(
    reader: Reader,
) -> None:
    compared = reader.json("/api/comparison?run=gpt2-124m&run=gpt2-124m-lr3e-4")
    assert compared["keys"] == ["loss", "val_loss"]
    first, other = (run["results"]["val_loss"] for run in compared["runs"])
    assert first["last"] == first["best"] < other["best"] and first["best_step"] == 1600
    assert compared["best"] == {"loss": "gpt2-124m-abcdef", "val_loss": "gpt2-124m-abcdef"}
    assert compared["differences"] == [{"path": "optimizer.lr", "values": [6e-4, 3e-4]}]
    assert compared["same"] > 20 and "notes" not in compared


def test_no_run_is_the_best_of_those_that_cannot_be_compared(workspace: Workspace) -> None:
    for name, method in (("dpo-1", "dpo"), ("sft-1", "sft")):
        run = PlantedJournal(workspace, name, method=method)
        run.write(*RUNNING)
        run.write(started(), metric(1), name="attempts/1/events.jsonl")
    compared = Reader(workspace).json("/api/comparison?run=dpo-1&run=sft-1")
    assert compared["best"] == {} and "can't be compared" in compared["notes"][0]
    assert compared["differences"] == [{"path": "method", "values": ["dpo", "sft"]}]


def test_curves_come_with_restarts_phases_findings_and_checkpoints(reader: Reader) -> None:
    curves = reader.json("/api/curves?run=gpt2-124m&run=sft-qwen&key=tokens")
    titles = [panel["title"] for panel in curves["panels"]]
    assert titles[0] == "loss" and titles[-1] == "tokens" and "GPU, %" in titles
    first, _ = curves["runs"]
    assert first["series"]["loss"]["steps"][-1] == 1600
    marks = {(mark["kind"], mark["step"], mark["label"]) for mark in first["marks"]}
    assert {
        ("restart", 800, "attempt 2: killed"),
        ("phase", 200, "main"),
        ("phase", 1400, "anneal"),
        ("finding", 1160, "loss_spike"),
        ("checkpoint", 1600, "step 1600"),
    } <= marks
    part = reader.json("/api/curves?run=gpt2-124m&from=400&to=440")["runs"][0]["series"]["loss"]
    assert part["steps"] == list(range(400, 441, 4))
    timed = reader.json("/api/curves?run=gpt2-124m&x=time")["runs"][0]["series"]["loss"]
    assert timed["x"] == sorted(timed["x"]) and timed["x"][0] == 0


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/run?run=nobody", 404, "RUN_NOT_FOUND"),
        ("/api/run", 404, "RUN_NOT_FOUND"),
        ("/api/curves", 400, "BAD_ARGUMENT"),
        ("/api/curves?" + "&".join(f"run=r{n}" for n in range(21)), 400, "BAD_ARGUMENT"),
        ("/api/comparison", 400, "BAD_ARGUMENT"),
        ("/api/comparison?run=gpt2-124m&run=nobody", 404, "RUN_NOT_FOUND"),
        ("/api/curves?run=gpt2-124m&x=moon", 400, "BAD_ARGUMENT"),
        ("/api/curves?run=gpt2-124m&from=-1", 400, "BAD_ARGUMENT"),
    ],
)
def test_what_cannot_be_answered_says_why(
    reader: Reader, path: str, status: int, code: str
) -> None:
    answer = reader.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_what_has_not_changed_is_not_sent_again(home: Path, workspace: Workspace) -> None:
    run, *_ = plant_board(workspace)
    reader, path = Reader(workspace), "/api/curves?run=gpt2-124m"
    first = reader.get(path)
    again = reader.get(path, **{"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    run.write(metric(1604, 1.5), name="attempts/2/events.jsonl")
    wait_until(lambda: reader.get(path).headers["etag"] != first.headers["etag"], "a new answer")
    assert reader.json(path)["runs"][0]["series"]["loss"]["last"] == 1.5


def test_a_damaged_metrics_database_is_rebuilt_while_the_page_asks(
    home: Path, workspace: Workspace
) -> None:
    plant_board(workspace)
    reader, path = Reader(workspace), "/api/curves?run=sft-qwen"
    before = reader.json(path)
    workspace.metrics.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    workspace.reopen_metrics()
    data = (home / "metrics.db").read_bytes()
    (home / "metrics.db").write_bytes(data[:4096].ljust(len(data), b"\xff"))
    reader = Reader(workspace)
    wait_until(lambda: reader.get(path).status_code == 200, "an answer")
    assert reader.json(path)["runs"][0]["series"] == before["runs"][0]["series"]
    assert list(home.glob("metrics.db.damaged.*"))


def test_only_files_of_the_page_are_served(reader: Reader) -> None:
    for name in ("main.js", "board.css", "palette.css", "icon.svg"):
        assert reader.get(f"/assets/{name}").status_code == 200
    for name in ("../app.py", "%2e%2e%2fapp.py", "app.py", "nothing.js"):
        assert reader.get(f"/assets/{name}").status_code == 404


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.7", "example.org"])
def test_other_addresses_than_this_machines_own_have_to_be_allowed(
    workspace: Workspace, address: str
) -> None:
    with pytest.raises(UsageError, match="--allow-remote") as refused:
        Board(workspace, Listening(address))
    assert refused.value.code == "BAD_ARGUMENT"


def test_a_board_for_others_needs_its_token_at_every_address(workspace: Workspace) -> None:
    board = Board(workspace, Listening("0.0.0.0", allows_remote=True))
    token = board.url.partition("#token=")[2]
    allowed = {"authorization": f"Bearer {token}"}
    addresses = {"127.0.0.1", _own_address()}

    async def asked() -> list[tuple[int, int]]:
        serving = asyncio.create_task(board.serve())
        async with httpx.AsyncClient(timeout=60.0) as http:
            urls = [f"http://{one}:{board.port}/api/board" for one in addresses]
            refused = [(await http.get(url)).status_code for url in urls]
            answered = [(await http.get(url, headers=allowed)).status_code for url in urls]
        board.end()
        await serving
        return list(zip(refused, answered, strict=True))

    assert run_async(asked) == [(403, 200)] * len(addresses)


def _own_address() -> str:
    """Of this machine in its network; loopback's where it has none. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            any_socket.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(any_socket.getsockname()[0])


def test_the_command_prints_its_address_and_ends_by_ctrl_c(home: Path) -> None:
    board = subprocess.Popen(
        [sys.executable, "-m", "trainmaster", "board", "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert board.stdout is not None
        address, _, token = json.loads(board.stdout.readline())["url"].partition("#token=")
        assert address.startswith("http://127.0.0.1:")
        headers = {"authorization": f"Bearer {token}"}
        assert httpx.get(f"{address}api/board", headers=headers).json()["runs"] == []
        board.send_signal(signal.SIGINT)
        assert board.wait(60.0) == 0
    finally:
        board.kill()
        board.communicate()


def test_the_page_names_no_other_place_and_holds_no_inline_code() -> None:
    page = Path(__file__).parents[2] / "server/trainmaster/board/page"
    for path in page.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text, path.name
        for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert sink not in text, (path.name, sink)
    html = (page / "index.html").read_text()
    assert "<style" not in html and " style=" not in html and "onclick" not in html
    assert html.count("<script") == html.count('<script type="module" src="/assets/')
