// Runs side by side: a table of results, and the settings in which they differ.

import { styleOf, swatch } from "./chart.js";
import { draw, h, progress, stateChip } from "./dom.js";
import { figure, setting } from "./format.js";
import { grid } from "./machines.js";

const FEW = 6;

export class Comparison {
  constructor(asking, ids) {
    this.root = h("section", { class: "comparison", "aria-label": "Results and differences" }, h("div", {}), h("div", {}));
    const path = `/api/comparison?${new URLSearchParams(ids.map((id) => ["run", id]))}`;
    this.asked = asking(() => path, (answer) => {
      const [table, differences] = this.root.children;
      draw(table, [answer.runs, answer.best, answer.notes], () => [results(answer), (answer.notes ?? []).map((note) => h("p", { class: "past" }, note))]);
      draw(differences, answer.differences, () => differencesOf(answer));
    });
  }

  stop() {
    this.asked.stop();
  }
}

/** A row per run with the last value of each metric, and the best with its step. */
function results({ runs, keys, best }) {
  return grid(["Run", "State", "Steps", ...keys], runs.map((run, at) => [
    h("a", { class: "key", href: `#/run/${encodeURIComponent(run.run_id)}` }, swatch({ ...styleOf(at), marked: true }), h("span", {}, run.run_id)),
    stateChip(run.state), progress(run.step, run.target_step, run.state),
    ...keys.map((key) => resultOf(run.results[key], best[key] === run.run_id)),
  ]), { numbers: keys.map((_, at) => 3 + at) });
}

function resultOf(result, isBest) {
  if (!result) return "–";
  return [figure(result.last), result.best !== undefined && h("small", { class: "best" }, "best ", h("b", {}, figure(result.best)),
    ` at step ${result.best_step.toLocaleString("en-US")}`, isBest && h("span", { class: "chip", "data-state": "ok" }, "★ best"))];
}

export function differencesOf({ runs, differences, same }) {
  if (!differences.length) return h("p", { class: "past" }, `All ${same} settings are alike.`);
  const table = grid(["Setting", ...runs.map((run) => run.run_id)], differences.map(({ path, values }) => [
    h("code", {}, path), ...values.map((content) => (content === null ? h("span", { class: "none" }, "–") : h("span", { class: "value" }, setting(content)))),
  ]));
  const many = differences.length === 1 ? "1 setting differs" : `${differences.length} settings differ`;
  return h("details", { open: differences.length <= FEW }, h("summary", {}, `${many}, ${same} ${same === 1 ? "is" : "are"} alike`), table);
}
