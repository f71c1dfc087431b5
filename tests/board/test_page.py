"""The board's page in a real browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.board.browser import Browser, opened_browser
from support.board.planted_board import HOSTILE, followed_elsewhere, plant_board
from support.board.served_board import served_board
from support.runs.operator import Operator
from support.runs.running_run import run_async, wait_until
from support.session.leftovers import end_supervisors_of

from trainmaster.board.serve import Board
from trainmaster.sync.workspace import open_workspace

pytestmark = pytest.mark.engine

_KILLED = '{TRAINMASTER_STEP_S: "0.04", TRAINMASTER_FAULTS: "kill@30"}'
_RUN, _OTHER, _FAILED = "gpt2-124m-abcdef", "gpt2-124m-lr3e-4-abcdef", "sft-qwen-abcdef"


class Shown:
    """A board that one browser shows."""

    def __init__(self, home: Path, board: Board, browser: Browser) -> None:
        self.home, self.board, self.browser = home, board, browser

    def page(self, hash: str, until: str) -> Browser:
        """Another page of the board, once that is true of it."""
        self.browser.ask(f"location.hash = {json.dumps(hash)}")
        self.browser.until(until)
        return self.browser

    def run(self, *runs: str) -> Browser:
        return self.page(f"#/run/{','.join(runs)}", f"{_count('figure.chart path.curve')} >= 4")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("page")
    home = folder / "home"
    with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
        plant_board(workspace)
    with ExitStack() as closing:
        closing.callback(end_supervisors_of, home / "debug")
        closing.enter_context(followed_elsewhere(home))
        board = closing.enter_context(served_board(home))
        browser = closing.enter_context(opened_browser(folder))
        browser.size(1280, 900)
        browser.open(board.url)
        browser.until(f"{_count('.runs tbody tr')} >= 4")
        yield Shown(home, board, browser)
        assert browser.said == []


def _count(selector: str) -> str:
    return f"document.querySelectorAll({json.dumps(selector)}).length"


def _text(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)}).innerText"


def test_the_token_leaves_the_address_and_lasts_for_the_tab(shown: Shown) -> None:
    browser = shown.browser
    assert browser.ask("location.href").endswith("/#/runs")
    browser.call("Page.reload")
    browser.until(f"{_count('.runs tbody tr')} >= 4")
    assert browser.ask("document.cookie") == ""


@pytest.mark.smoke
def test_runs_are_listed_with_what_needs_attention_and_filtered(shown: Shown) -> None:
    browser = shown.page("#/runs", f"{_count('.attention li')} >= 3")
    assert "sft-qwen failed: cuda_oom" in browser.ask(_text(".attention"))
    assert browser.ask(f"{_count('.spark polyline')} >= 4")
    browser.ask("document.querySelector('input[type=search]').focus()")
    browser.call("Input.insertText", text="qwen")
    browser.until(f"{_count('.runs tbody tr')} === 1")


def test_curves_show_restarts_phases_findings_checkpoints_and_evaluations(shown: Shown) -> None:
    browser = shown.run(_RUN)
    chart = "figure.chart.tall"
    assert browser.ask(_count(f"{chart} .mark.restart")) == 1
    assert browser.ask(_count(f"{chart} .mark.phase")) == 3
    assert browser.ask(_count(f"{chart} .mark.warning")) == 1
    assert browser.ask(_count(f"{chart} .mark.checkpoint")) == 8
    assert browser.ask(_count(f"{chart} .line .dot")) == 8
    labels = browser.ask(
        f"[...document.querySelectorAll('{chart} .label')].map((one) => one.textContent).join()"
    )
    assert all(name in labels for name in ("attempt 2", "main", "anneal", "loss_spike"))


def test_keys_read_values_and_a_drag_shows_a_part_of_the_run(shown: Shown) -> None:
    browser = shown.run(_RUN)
    browser.ask("document.querySelector('.tall .plot').focus()")
    browser.press("End")
    assert browser.ask(_text(".tall .tip")).startswith("step 1,600")
    browser.press("Home")
    assert browser.ask(_text(".tall .tip")).startswith("step 0")
    browser.press("Escape")
    assert browser.ask("document.querySelector('.tall .tip').hidden")
    left, top, width = browser.ask(
        "(() => { const box = document.querySelector('.tall .plot').getBoundingClientRect();"
        " return [box.left, box.top, box.width]; })()"
    )
    browser.drag(left + 0.5 * width, left + 0.6 * width, top + 150)
    ticks = "[...document.querySelectorAll('.tall .grid .x')].map((one) => one.textContent).join()"
    browser.until(f"!({ticks}).split(',').includes('0')")
    browser.ask("[...document.querySelectorAll('.controls button')].at(-1).click()")
    browser.until(f"({ticks}).split(',').includes('0')")


def test_log_scale_smoothing_and_other_axes_redraw_the_curves(shown: Shown) -> None:
    browser = shown.run(_RUN)
    curve = "document.querySelector('.tall path.curve').getAttribute('d')"
    straight = browser.ask(curve)
    press = "[...document.querySelectorAll('.controls button')].find((one) => one.textContent === "
    browser.ask(f"{press}'Log scale').click()")
    assert browser.ask(curve) != straight
    browser.ask(
        "(() => { const one = document.querySelector('.controls label select');"
        " one.value = '0.9'; one.dispatchEvent(new Event('change')); })()"
    )
    assert browser.ask(_count(".tall path.raw")) == 1
    for axis in ("Tokens", "Time"):
        browser.ask(f"{press}'{axis}').click()")
        name = {"Tokens": "by tokens", "Time": "by minutes"}[axis]
        browser.until(f"{_text('.tall .chart-title')}.endsWith('{name}')")
        assert browser.ask(_count(".tall .mark.restart")) == 1


def test_several_runs_are_compared_in_their_own_colours(shown: Shown) -> None:
    browser = shown.page("#/runs", f"{_count('.runs tbody tr')} >= 4")
    browser.ask(f"document.querySelector('input[data-run=\"{_RUN}\"]').click()")
    browser.ask(f"document.querySelector('input[data-run=\"{_OTHER}\"]').click()")
    browser.ask("document.querySelector('.compare-bar a').click()")
    browser.until(f"{_count('.tall path.curve')} === 2")
    curves = "[...document.querySelectorAll('.tall path.curve')]"
    colours = browser.ask(f"{curves}.map((one) => getComputedStyle(one).stroke)")
    dashes = browser.ask(f"{curves}.map((one) => one.getAttribute('stroke-dasharray'))")
    assert len(set(colours)) == len(set(dashes)) == 2
    browser.until(f"{_count('.comparison a.key')} === 2")
    said = browser.ask(_text(".comparison"))
    assert "1 setting differs" in said and "optimizer.lr" in said
    assert "★ best" in browser.ask(_text(".comparison tbody tr:first-child"))
    assert "★" not in browser.ask(_text(".comparison tbody tr:nth-child(2)"))


def test_curves_that_coincide_have_shapes_of_their_own_in_places_of_their_own(
    shown: Shown,
) -> None:
    browser = shown.run(_RUN, _OTHER)
    panel = (
        "[...document.querySelectorAll('figure.chart')]"
        ".find((one) => one.innerText.startsWith('GPU, %')).querySelector('.plot')"
    )
    lines = f"{panel}.querySelectorAll('path.curve')"
    shapes = f"{panel}.querySelectorAll('path.dot')"
    assert browser.ask(f"new Set([...{lines}].map((one) => one.getAttribute('d'))).size") == 1
    drawn = browser.ask(
        f"[...{shapes}].map((one) => [one.getAttribute('d'), one.getAttribute('transform')])"
    )
    assert len({shape for shape, _ in drawn}) == 2
    assert len({place for _, place in drawn}) == len(drawn) >= 4


def test_twenty_runs_differ_without_colours(shown: Shown) -> None:
    styles = "[...Array(20).keys()].map(chart.styleOf).map(({ dash, shape }) => `${dash} ${shape}`)"
    assert (
        shown.browser.ask(f"import('/assets/chart.js').then((chart) => new Set({styles}).size)")
        == 20
    )


@pytest.mark.parametrize(
    ("low", "high", "words", "whole"),
    [
        (0, 1600, "0 500 1,000 1,500", True),
        (0, 64, "0 20 40 60", False),
        (0, 110, "0 50 100", False),
        (0, 2, "0 1 2", True),
        (0, 2, "0 0.5 1.0 1.5 2.0", False),
        (0, 6.3e-4, "0 2e-4 4e-4 6e-4", False),
        (0, 1.6e-3, "0 0.0005 0.0010 0.0015", False),
        (61.2, 61.3, "61.20 61.25 61.30", False),
        (178_000, 186_000, "178k 180k 182k 184k 186k", False),
        (0, 786_000_000, "0 200M 400M 600M", False),
        (-0.3, 0.2, "-0.2 0 0.2", False),
        (3.0, 3.0005, "3.0000 3.0002 3.0004", False),
    ],
)
def test_an_axis_has_several_numbers_of_one_form(
    shown: Shown, low: float, high: float, words: str, whole: bool
) -> None:
    ticks = (
        "Promise.all([import('/assets/scales.js'), import('/assets/format.js')]).then("
        f"([s, f]) => f.tickWords(s.linearTicks({low}, {high}, 4, {json.dumps(whole)})).join(' '))"
    )
    assert shown.browser.ask(ticks) == words


def test_a_run_shows_checkpoints_and_texts_of_its_model_as_text(shown: Shown) -> None:
    browser = shown.run(_RUN)
    browser.until(f"{_count('.checkpoints tbody tr')} === 8")
    newest = browser.ask(_text(".checkpoints tbody tr")).split()
    assert newest[:5] == ["1,600", "✓", "verified", "3.103", "3.112"]
    assert "resume starts here" in browser.ask(_text(".checkpoints tbody tr"))
    assert browser.ask(_count(".sample")) == 2
    assert HOSTILE in browser.ask(_text(".written"))
    assert browser.ask("window.hacked") is None and browser.ask(_count(".written img")) == 0


def test_a_configuration_is_compared_with_that_of_a_chosen_run(shown: Shown) -> None:
    browser = shown.run(_RUN)
    browser.until(f"{_count('.settings option')} === 4")
    assert "optimizer.lr" in browser.ask(_text(".settings .values"))
    browser.ask(
        "(() => { const one = document.querySelector('.settings select');"
        f" one.value = '{_OTHER}'; one.dispatchEvent(new Event('change')); }})()"
    )
    browser.until(_count(".settings table"))
    assert browser.ask(_text(".settings tbody tr")).split() == ["optimizer.lr", "0.0006", "0.0003"]
    browser.ask("document.querySelector('.settings a.button').click()")
    browser.until(f"{_count('.tall path.curve')} === 2")


def test_what_ended_without_a_step_has_no_empty_bar(shown: Shown) -> None:
    bars = (
        "import('/assets/dom.js').then((dom) => [['completed', 0], ['running', 0], ['failed', 7]]"
        ".map(([state, step]) => dom.progress(step, 10, state).querySelectorAll('.bar').length))"
    )
    assert shown.browser.ask(bars) == [0, 1, 1]


def test_a_finding_shows_its_patch_and_foreign_text_stays_text(shown: Shown) -> None:
    card = '.finding-card[data-severity="critical"]'
    browser = shown.page(f"#/run/{_FAILED}", _count(card))
    said = browser.ask(_text(card))
    assert HOSTILE in said
    assert "batch.micro_batch" in said and "halve_micro_batch" in said
    assert f"resume {_FAILED} --apply 0a0a0a0a:halve_micro_batch" in said
    assert browser.ask("window.hacked") is None
    assert browser.ask(_count("main script, main img")) == 0
    assert (
        browser.ask(
            "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'set'; }"
            " catch (error) { return error.name; } })()"
        )
        == "TypeError"
    )
    browser.said.clear()  # what the browser says of that


def test_what_has_the_focus_keeps_it_when_its_row_changes(shown: Shown) -> None:
    browser = shown.page("#/runs", f"{_count('.runs tbody tr')} >= 4")
    tick = f'input[data-run="{_RUN}"]'
    browser.ask(f"document.querySelector('{tick}').focus()")
    browser.ask(f"document.querySelector('{tick}').click()")
    assert browser.ask(f"document.activeElement.matches('{tick}')")
    assert browser.ask("document.activeElement.checked")


def test_hosts_and_costs_are_shown(shown: Shown) -> None:
    browser = shown.page("#/machines", f"{_count('.tile')} === 4")
    page, tiles = browser.ask(_text("main")), browser.ask(_text(".tiles"))
    assert "gpu1" in page and "$3.00/h" in tiles and "1 instance, 1 volume" in tiles
    for shown_of_it in ("Volumes", "data", "runpod US-TX-3", "100 GB", "$7.06"):
        assert shown_of_it in page


def test_a_debug_run_appears_moves_and_shows_its_restart(shown: Shown) -> None:
    found: list[str] = []
    thread = threading.Thread(target=_train, args=(shown.home, found))
    thread.start()
    try:
        wait_until(lambda: found, "a launched run")
        browser = shown.page(f"#/run/{found[0]}", _count("figure.chart path.curve"))
        length = "document.querySelector('.tall path.curve').getAttribute('d').length"
        before = browser.ask(length)
        browser.until(f"{length} > {before}")
        browser.until(_count(".tall .mark.restart"))
        browser.until(f"{_text('.run-head .state')}.includes('completed')")
    finally:
        thread.join(60.0)
    assert not thread.is_alive()


def _train(home: Path, found: list[str]) -> None:
    """Launch a run that is killed once, and stay with it to its end."""

    async def trained() -> None:
        with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
            operator = Operator(workspace, home)
            found.append(await operator.launch(_KILLED))
            await operator.ended(found[0])
            await workspace.disconnect()

    run_async(trained)


_COMPARED = f"#/run/{_RUN},{_OTHER},{_FAILED}"


@pytest.mark.parametrize(
    ("page", "until"),
    [
        ("#/runs", f"{_count('.runs tbody tr')} >= 4"),
        (f"#/run/{_RUN}", f"{_count('.checkpoints tr')} && {_count('path.curve')} >= 4"),
        (_COMPARED, f"{_count('.comparison a.key')} === 3 && {_count('path.curve')} >= 4"),
        ("#/machines", f"{_count('.tile')} === 4"),
    ],
)
def test_a_phone_shows_all_of_it_without_scrolling_sideways(
    shown: Shown, page: str, until: str
) -> None:
    shown.browser.size(360, 780, phone=True)
    browser = shown.page(page, until)
    assert browser.ask("document.documentElement.scrollWidth") <= 360
    axes = "document.querySelectorAll('.plot .grid')"
    ticks = "['.x', '.y'].map((axis) => one.querySelectorAll(axis).length)"
    numbers = f"[...{axes}].map((one) => Math.min(...{ticks}))"
    assert min(browser.ask(numbers), default=3) >= 3
    shown.browser.size(1280, 900)


def test_dark_and_light_follow_the_system_until_one_is_chosen(shown: Shown) -> None:
    browser, ground = shown.browser, "getComputedStyle(document.body).backgroundColor"
    browser.theme("light")
    light = browser.ask(ground)
    browser.theme("dark")
    assert browser.ask(ground) != light
    browser.ask("document.getElementById('theme').click()")
    assert browser.ask(ground) == light


def test_a_wrong_token_shows_why_and_no_data(shown: Shown) -> None:
    browser = shown.browser
    browser.open(shown.board.url.partition("#")[0] + "#token=wrong")
    browser.until(f"{_count('#refused')} === 1")
    assert "no valid token" in browser.ask(_text("#refused"))
    assert "qwen" not in browser.ask(_text("main"))
    browser.said.clear()  # 403, in the browser's words


def test_a_foreign_name_that_leads_here_shows_no_page(shown: Shown) -> None:
    """The browser resolves every name of `.localhost` to loopback: no other one is needed."""
    browser = shown.browser
    browser.open(f"http://attacker.localhost:{shown.board.port}/")
    browser.until("document.body && document.body.innerText.includes('ORIGIN_REFUSED')")
    browser.said.clear()
