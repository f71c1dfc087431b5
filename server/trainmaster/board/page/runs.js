// All runs, and what needs attention.

import { advice, draw, drawEach, h, isOpen, nextStep, progress, stateChip, svg } from "./dom.js";
import { count, duration, usd, value } from "./format.js";

export function runsPage(main, asking) {
  const chosen = new Set();
  let board = null, filter = "", only = "all";
  const attention = h("section", { class: "attention", "aria-label": "Needs attention" });
  const body = h("tbody", {}), empty = h("p", { class: "empty", hidden: true });
  const rows = h("div", { class: "runs" }, table(body), empty);
  const compare = h("div", { class: "compare-bar", hidden: true });
  const totals = h("p", { class: "totals" });
  const search = h("input", {
    type: "search", placeholder: "Filter by name, host or state", "aria-label": "Filter runs",
    on: { input: () => { filter = search.value.trim().toLowerCase(); show(); } },
  });
  const which = h("div", { class: "segments", role: "group", "aria-label": "Which runs" },
    ["all", "open", "ended"].map((name) => h("button", {
      type: "button", "aria-pressed": name === only,
      on: { click: (event) => {
        only = name;
        for (const one of which.children) one.setAttribute("aria-pressed", one === event.target);
        show();
      } },
    }, name[0].toUpperCase() + name.slice(1))));
  main.append(attention, h("div", { class: "bar-row" }, h("h1", {}, "Runs"), totals,
    h("span", { class: "spacer" }), which, search), compare, rows);

  function show() {
    if (!board) return;
    draw(attention, [board.attention, board.next_step], () => attentionOf(board));
    draw(totals, counted(board), () => counted(board).join(" · "));
    const wanted = board.runs.filter((run) => matches(run, filter, only));
    drawEach(body, wanted, (run) => run.run_id, () => h("tr", {}),
      (run) => [run, chosen.has(run.run_id)], (run) => row(run, chosen, choose));
    draw(empty, board.runs.length, () => nothing(board));
    empty.hidden = wanted.length > 0;
    body.parentElement.hidden = !wanted.length;
    draw(compare, [...chosen], () => [...chosen].length > 1 && comparing([...chosen], clear));
    compare.hidden = chosen.size < 2;
  }
  function choose(runId, wanted) {
    if (wanted) chosen.add(runId); else chosen.delete(runId);
    show();
  }
  function clear() { chosen.clear(); show(); }
  const asked = asking(() => "/api/board", (answer) => { board = answer; show(); });
  document.title = "Runs · Trainmaster";
  return asked.stop;
}

function matches(run, filter, only) {
  if (only !== "all" && isOpen(run.state) !== (only === "open")) return false;
  return !filter || [run.name, run.run_id, run.host, run.state].some((word) => word.toLowerCase().includes(filter));
}

function counted(board) {
  const open = board.runs.filter((run) => isOpen(run.state)).length;
  const words = [`${open} open`, `${board.runs.length - open} ended`];
  if (board.usd_per_h) words.push(`instances cost ${usd(board.usd_per_h)}/h`);
  return words;
}

function attentionOf(board) {
  if (!board.attention.length) return [];
  return [
    h("h2", {}, "Needs attention"),
    h("ul", {}, board.attention.map((line) => h("li", {}, linked(line, board.runs)))),
    nextStep(board.next_step),
  ];
}

/** A line that begins with the name of a run leads to it. */
function linked(line, runs) {
  const run = runs.find((one) => line === one.name || line.startsWith(`${one.name} `));
  return run ? [h("a", { href: address(run.run_id) }, run.name), line.slice(run.name.length)] : line;
}

function address(...ids) {
  return `#/run/${ids.map(encodeURIComponent).join(",")}`;
}

function comparing(ids, clear) {
  return [h("span", {}, `${ids.length} runs chosen`), h("a", { class: "button", href: address(...ids) }, "Compare"),
    h("button", { type: "button", class: "quiet", on: { click: clear } }, "Clear")];
}

const COLUMNS = ["", "Run", "State", "Progress", "Loss", "Curve", "Tokens/s", "To go", "Cost", "Findings"];

function table(body) {
  return h("table", {},
    h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" },
      name || h("span", { class: "visually-hidden" }, "Compare"))))),
    body);
}

function nothing(board) {
  if (board.runs.length) return "No run matches.";
  return ["No runs yet. ", advice("`trainmaster launch SPEC` starts one, `trainmaster demo` shows one.")];
}

function row(run, chosen, choose) {
  const tick = h("input", {
    type: "checkbox", "aria-label": `Compare ${run.name}`, "data-run": run.run_id,
    checked: chosen.has(run.run_id), on: { change: (event) => choose(run.run_id, event.target.checked) },
  });
  const open = isOpen(run.state);
  return [
    cell("", tick),
    h("th", { scope: "row", class: "name" },
      h("a", { href: address(run.run_id) }, run.name), h("small", {}, run.host)),
    cell("State", stateChip(run.state)),
    cell("Progress", progress(run.step, run.target_step, run.state)),
    cell("Loss", value(run.loss), "number"),
    cell("Curve", sparkline(run.curve)),
    cell("Tokens/s", run.tokens_per_s ? count(run.tokens_per_s) : "–", "number"),
    cell("To go", open ? duration(run.eta_s) : "–", "number"),
    cell("Cost", usd(run.usd), "number"),
    cell("Findings", run.findings.length ? run.findings.map((code) => h("span", { class: "chip finding" }, code)) : "–"),
  ];
}

function cell(label, shown, kind = "") {
  const empty = shown === "–" ? " none" : "";
  return h("td", { "data-label": label, class: `${kind}${empty}` }, shown);
}

function sparkline(values) {
  if (values.length < 2) return "–";
  const low = Math.min(...values), span = Math.max(...values) - low || 1;
  const points = values.map((one, at) =>
    `${(2 + (92 * at) / (values.length - 1)).toFixed(1)},${(22 - (20 * (one - low)) / span).toFixed(1)}`);
  const [x, y] = points.at(-1).split(",");
  return svg("svg", { class: "spark", viewBox: "0 0 96 24", width: 96, height: 24, role: "img",
    "aria-label": `loss from ${value(values[0])} to ${value(values.at(-1))}` },
    svg("polyline", { points: points.join(" ") }), svg("circle", { cx: x, cy: y, r: 2 }));
}
