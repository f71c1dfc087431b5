"""Kaggle's own client in its process, against a stand-in that really runs what is pushed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kaggle.recording_client import Asked, asking, kernel
from support.kaggle.site import LEGACY_KEY, OWNER, TOKEN, KaggleSite, serving_kaggle

from trainmaster.backends.kaggle.client import KernelStatus, SourcesLeftOutError
from trainmaster.backends.kaggle.credentials import missing
from trainmaster.errors.errors import CloudError


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaggleSite]:
    with serving_kaggle(tmp_path_factory.mktemp("site") / "kaggle") as site:
        yield site


@pytest.fixture(scope="module")
def asked(serving: KaggleSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """With keys of the home's own file, and set to verbose output."""
    home = tmp_path_factory.mktemp("home")
    secrets = home / "secrets.env"
    secrets.write_text(f"KAGGLE_USERNAME={OWNER}\nKAGGLE_KEY={LEGACY_KEY}\n")
    secrets.chmod(0o600)
    environment = {**serving.environment, "KAGGLE_API_TOKEN": "", "VERBOSE": "true"}
    with asking(home, environment) as asked:
        yield asked


@pytest.fixture
def site(serving: KaggleSite) -> Iterator[KaggleSite]:
    """Whatever a test sets is as before afterwards."""
    yield serving
    assert serving.open_faults == []
    serving.cut_stream_after = serving.split_events_at = None
    serving.quota_used_s, serving.odd_outputs = 3600.0, []
    serving.page_size = 100
    serving.hold_queue()
    serving.release_queue()


def test_a_pushed_script_runs_and_its_output_is_mounted_into_the_next(
    asked: Asked, site: KaggleSite, tmp_path: Path
) -> None:
    code = "(working / 'run').mkdir(); (working / 'run' / 'a').write_text('one'); print('hello')"
    ref = asked.ran(site, "tm-first", code)
    assert asked.events(ref) == [("stdout", "hello\n")]
    assert asked(asked.client.status(ref)) == KernelStatus("complete")
    assert asked(asked.client.outputs(ref)) == ["run/a"]
    asked(asked.client.fetch_output(ref, "run/a", tmp_path / "deep" / "a"))
    assert (tmp_path / "deep" / "a").read_text() == "one"
    again = "print((inputs / 'tm-first' / 'run' / 'a').read_text())"
    asked.ran(site, "tm-first", again, kernel_sources=[ref])
    assert asked.events(ref) == [("stdout", "one\n")]


def test_a_push_says_all_that_kaggle_would_decide_by_itself(asked: Asked, site: KaggleSite) -> None:
    asked.ran(site, "tm-log", "", gpu=True, accelerator="NvidiaTeslaT4", timeout_s=77)
    body = next(body for kind, body in reversed(site.bodies) if kind == "SaveKernel")
    assert body["slug"] == f"{OWNER}/tm-log"
    assert (body["isPrivate"], body["enableGpu"], body["enableInternet"]) == (True, True, False)
    assert (body["machineShape"], body["sessionTimeoutSeconds"]) == ("NvidiaTeslaT4", 77)


def test_sources_that_kaggle_leaves_out_are_a_failure(asked: Asked, site: KaggleSite) -> None:
    sources = {"kernel_sources": [f"{OWNER}/tm-gone"], "dataset_sources": [f"{OWNER}/tm-data-gone"]}
    with pytest.raises(SourcesLeftOutError) as raised:
        asked(asked.client.push(kernel("tm-sources", "", **sources)))
    assert raised.value.code == "KAGGLE_REFUSED"
    assert raised.value.sources == (f"{OWNER}/tm-data-gone", f"{OWNER}/tm-gone")
    assert all(source in raised.value.message for source in raised.value.sources)


def test_a_push_whose_answer_is_lost_is_not_repeated(asked: Asked, site: KaggleSite) -> None:
    site.fail("SaveKernel", "lose")
    ref, before = f"{OWNER}/tm-lost", site.asked["SaveKernel"]
    with pytest.raises(CloudError) as raised:
        asked(asked.client.push(kernel("tm-lost", "print('marker of ours')")))
    assert (raised.value.code, raised.value.retryable) == ("KAGGLE_UNREACHABLE", True)
    assert site.asked["SaveKernel"] == before + 1
    found = asked(asked.client.kernel(ref, "marker of ours"))
    assert found is not None
    assert (found.version, found.marked) == (1, True)


def test_a_foreign_kernel_is_recognized_by_its_script(asked: Asked, site: KaggleSite) -> None:
    site.add_foreign_kernel("tm-by-hand")
    found = asked(asked.client.kernel(f"{OWNER}/tm-by-hand", "marker of ours"))
    assert found is not None
    assert not found.marked


def test_a_missing_kernel_has_no_state(asked: Asked, site: KaggleSite) -> None:
    ref = f"{OWNER}/tm-nowhere"
    assert asked(asked.client.status(ref)) is None
    assert asked(asked.client.kernel(ref, "")) is None
    page = asked(asked.client.log(ref, 0, 0.1))
    assert (page.events, page.ended) == ([], False)


def test_a_log_that_is_cut_off_and_replayed_comes_once_and_in_order(
    asked: Asked, site: KaggleSite
) -> None:
    site.cut_stream_after = 7
    code = "for n in range(40):\n  print(n, flush=True); time.sleep(0.005)"
    pushed = asked(asked.client.push(kernel("tm-cut-off", code)))
    events = asked.events(pushed.ref)
    assert [data for _, data in events] == [f"{n}\n" for n in range(40)]


def test_a_later_reader_continues_a_log_from_an_index(asked: Asked, site: KaggleSite) -> None:
    ref = asked.ran(site, "tm-index", "for n in range(9): print(n)")
    assert asked.events(ref, after=6) == [("stdout", f"{n}\n") for n in (6, 7, 8)]


def test_a_log_that_waits_keeps_no_other_request_waiting(asked: Asked, site: KaggleSite) -> None:
    site.hold_queue()

    async def both() -> tuple[KernelStatus | None, bool]:
        pushed = await asked.client.push(kernel("tm-waits", "print('go')"))
        log = asyncio.create_task(asked.client.log(pushed.ref, 0, 30.0))
        status = await asked.client.status(pushed.ref)
        waits = not log.done()
        site.release_queue()
        assert (await log).events == [("stdout", "go\n")]
        return status, waits

    assert asked(both()) == (KernelStatus("queued"), True)


def test_a_session_that_is_killed_leaves_no_output(asked: Asked, site: KaggleSite) -> None:
    code = "(working / 'a').write_text('one'); print('here', flush=True); time.sleep(60)"
    ref = asked.ran(site, "tm-too-long", code, timeout_s=1)
    status = asked(asked.client.status(ref))
    assert status is not None
    assert status.state == "error"
    assert "allowed time" in str(status.message)
    assert asked(asked.client.outputs(ref)) == []


def test_outputs_are_listed_page_by_page_without_unsafe_names(
    asked: Asked, site: KaggleSite
) -> None:
    site.page_size, site.odd_outputs = 2, ["../out", "/etc/passwd", "a/../../b", "a\nb"]
    names = [*"01234", "Model.bin", "model.bin", "NUL", "com1.txt", "n" * 250]
    ref = asked.ran(site, "tm-many", f"[(working / name).write_text('') for name in {names}]")
    assert asked(asked.client.outputs(ref)) == [*"01234", "Model.bin"]


def test_a_broken_download_is_resumed(asked: Asked, site: KaggleSite, tmp_path: Path) -> None:
    ref = asked.ran(site, "tm-breaks", "(working / 'a').write_bytes(bytes(range(256)) * 4000)")
    site.fail("Download", "cut", 2)
    before = site.asked["Download"]
    asked(asked.client.fetch_output(ref, "a", tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == bytes(range(256)) * 4000
    assert site.asked["Download"] == before + 3
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["a"]


def test_an_expired_url_is_requested_again(asked: Asked, site: KaggleSite, tmp_path: Path) -> None:
    ref = asked.ran(site, "tm-spent", "(working / 'a').write_text('one')")
    asked(asked.client.outputs(ref))
    site.fail("Download", "403")
    asked(asked.client.fetch_output(ref, "a", tmp_path / "a"))
    assert (tmp_path / "a").read_text() == "one"


def test_a_file_that_can_not_be_had_leaves_the_older_one(
    asked: Asked, site: KaggleSite, tmp_path: Path
) -> None:
    ref = asked.ran(site, "tm-older", "(working / 'a').write_text('new')")
    (tmp_path / "a").write_text("old")
    site.fail("Download", "cut", 4)
    with pytest.raises(CloudError, match="KAGGLE_UNREACHABLE"):
        asked(asked.client.fetch_output(ref, "a", tmp_path / "a"))
    assert (tmp_path / "a").read_text() == "old"


def test_the_quota_is_in_seconds(asked: Asked, site: KaggleSite) -> None:
    site.quota_used_s = 100_000.0
    quota = asked(asked.client.quota())
    assert (quota.used_s, quota.total_s) == (pytest.approx(100_000.0, abs=60), 108_000.0)
    assert quota.refresh_t == 1795824000.0


def test_a_used_up_quota_is_reported_in_kaggles_words(asked: Asked, site: KaggleSite) -> None:
    site.quota_used_s = 200_000.0
    with pytest.raises(CloudError, match="Maximum weekly GPU quota reached") as raised:
        asked(asked.client.push(kernel("tm-no-quota", "", gpu=True)))
    assert raised.value.code == "KAGGLE_REFUSED"


@pytest.mark.parametrize("fault", ["drop", "garbage", "500", "429"])
def test_what_goes_wrong_on_the_way_may_be_tried_again(
    asked: Asked, site: KaggleSite, fault: str
) -> None:
    site.fail("GetAcceleratorQuotaStatistics", fault)  # type: ignore[arg-type]
    with pytest.raises(CloudError) as raised:
        asked(asked.client.quota())
    assert (raised.value.code, raised.value.retryable) == ("KAGGLE_UNREACHABLE", True)
    assert asked(asked.client.quota()).total_s == 108_000.0


def test_the_key_stands_in_no_command_line_and_no_error(asked: Asked, site: KaggleSite) -> None:
    asked(asked.client.account())
    (worker,) = _workers()
    assert LEGACY_KEY.encode() not in Path(f"/proc/{worker}/cmdline").read_bytes()
    site.fail("GetAcceleratorQuotaStatistics", "500")
    with pytest.raises(CloudError) as raised:
        asked(asked.client.quota())
    assert LEGACY_KEY not in str(raised.value)


def test_a_killed_client_is_restarted(asked: Asked, site: KaggleSite) -> None:
    site.hold_queue()

    async def killed() -> None:
        pushed = await asked.client.push(kernel("tm-killed", "print('done')"))
        log = asyncio.create_task(asked.client.log(pushed.ref, 0, 60.0))
        await asked.client.status(pushed.ref)
        (worker,) = _workers()
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(CloudError, match="may have taken effect"):
            await log
        site.release_queue()
        assert (await asked.client.log(pushed.ref, 0, 30.0)).events == [("stdout", "done\n")]

    asked(killed())


def test_a_missing_answer_times_out_and_blocks_no_other_request(
    asked: Asked, site: KaggleSite
) -> None:
    asked(asked.client.account())
    before = set(_workers())
    site.fail("GetAcceleratorQuotaStatistics", "hang")
    asked.client.answer_s = 0.5
    try:
        with pytest.raises(CloudError, match="may have taken effect") as raised:
            asked(asked.client.quota())
    finally:
        asked.client.answer_s = 120.0
        site.take_fault("GetAcceleratorQuotaStatistics")  # where it was given up before it was sent
    assert raised.value.retryable
    assert asked(asked.client.quota()).total_s == site.quota_total_s
    assert not before & set(_workers())


def test_no_process_is_left_once_it_is_closed(site: KaggleSite, tmp_path: Path) -> None:
    with asking(tmp_path / "home", {**site.environment, "KAGGLE_API_TOKEN": "KGAT_bad"}) as asked:
        others = set(_workers())
        with pytest.raises(CloudError) as raised:
            asked(asked.client.account())
    assert set(_workers()) == others
    assert list((tmp_path / "home" / "kaggle-clients").iterdir()) == []
    assert raised.value.code == "KAGGLE_KEY_REFUSED"
    assert "KAGGLE_API_TOKEN" in raised.value.message
    assert "KGAT_bad" not in str(raised.value)


def test_a_bad_token_takes_precedence_over_a_good_key(site: KaggleSite, tmp_path: Path) -> None:
    keys = {"KAGGLE_API_TOKEN": "KGAT_bad", "KAGGLE_USERNAME": OWNER, "KAGGLE_KEY": LEGACY_KEY}
    with (
        asking(tmp_path / "home", {**site.environment, **keys}) as asked,
        pytest.raises(CloudError, match="KAGGLE_USERNAME and KAGGLE_KEY") as raised,
    ):
        asked(asked.client.quota())
    assert raised.value.code == "KAGGLE_KEY_REFUSED"
    assert "unset KAGGLE_API_TOKEN" in raised.value.fix


def test_a_missing_key_error_names_the_source_and_the_file(
    site: KaggleSite, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with asking(home, {**site.environment, "KAGGLE_API_TOKEN": ""}) as asked:
        with pytest.raises(CloudError, match="KAGGLE_API_TOKEN") as raised:
            asked(asked.client.quota())
        assert raised.value.code == "KAGGLE_KEY_MISSING"
        assert "https://www.kaggle.com/settings" in raised.value.fix
        (home / "secrets.env").write_text(f"KAGGLE_API_TOKEN={TOKEN}\n")
        (home / "secrets.env").chmod(0o600)
        assert asked(asked.client.account()) == OWNER


def test_half_a_key_error_names_the_missing_half() -> None:
    assert missing({"KAGGLE_USERNAME": OWNER}).startswith("KAGGLE_USERNAME is set, but KAGGLE_KEY")


def test_a_secrets_file_that_others_can_read_is_refused(site: KaggleSite, tmp_path: Path) -> None:
    (tmp_path / "secrets.env").write_text(f"KAGGLE_API_TOKEN={TOKEN}\n")
    (tmp_path / "secrets.env").chmod(0o644)
    with (
        asking(tmp_path, {**site.environment, "KAGGLE_API_TOKEN": ""}) as asked,
        pytest.raises(CloudError, match="chmod 600") as raised,
    ):
        asked(asked.client.account())
    assert raised.value.code == "SECRET_INVALID"


def test_a_missing_package_error_names_the_install_command(
    site: KaggleSite, tmp_path: Path
) -> None:
    (tmp_path / "kaggle.py").write_text("raise ImportError(\"No module named 'kaggle'\")\n")
    with (
        asking(tmp_path / "home", {**site.environment, "PYTHONPATH": str(tmp_path)}) as asked,
        pytest.raises(CloudError) as raised,
    ):
        asked(asked.client.account())
    assert raised.value.code == "PACKAGE_MISSING"
    assert "-m pip install 'kaggle<3,>=2.2.4' 'six>=1.16'" in raised.value.fix


def test_where_nobody_answers_it_may_be_tried_again(site: KaggleSite, tmp_path: Path) -> None:
    keys = {"KAGGLE_API_TOKEN": "", "KAGGLE_USERNAME": OWNER, "KAGGLE_KEY": LEGACY_KEY}
    nowhere = {**site.environment, **keys, "http_proxy": "http://127.0.0.1:9"}
    with (
        asking(tmp_path / "home", nowhere) as asked,
        pytest.raises(CloudError) as raised,
    ):
        asked(asked.client.quota())
    assert (raised.value.code, raised.value.retryable) == ("KAGGLE_UNREACHABLE", True)


def _workers() -> list[int]:
    """The clients' processes that this one has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes()
            parent = (path / "stat").read_bytes().rsplit(b")", 1)[1].split()[1]
        except OSError:
            continue
        if b"kaggle.worker" in words and int(parent) == os.getpid():
            found.append(int(path.name))
    return found
