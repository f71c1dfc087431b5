// The configuration of a run, and what differs from another run's.

import { draw, h } from "./dom.js";
import { setting } from "./format.js";
import { differencesOf } from "./comparison.js";

const RUNS_EVERY_MS = 30000;

export class Settings {
  constructor(asking, runId) {
    Object.assign(this, { asking, runId, other: "", asked: null });
    this.choice = h("select", { on: { change: () => this.compare(this.choice.value) } });
    this.link = h("span", { hidden: true });
    this.body = h("div", {});
    this.root = h("section", { class: "settings", hidden: true }, h("div", { class: "bar-row" },
      h("h2", {}, "Configuration"), h("span", { class: "spacer" }), h("label", {}, "Differences from ", this.choice), this.link), this.body);
    this.runs = asking(() => "/api/board", (board) => this.offer(board.runs), RUNS_EVERY_MS);
  }

  stop() {
    this.runs.stop();
    this.asked?.stop();
  }

  offer(runs) {
    const others = runs.filter((run) => run.run_id !== this.runId).map((run) => run.run_id);
    draw(this.choice, others, () => [h("option", { value: "" }, "no other run"), others.map((id) => h("option", { value: id }, id))]);
    this.choice.value = this.other;
  }

  show(settings) {
    this.settings = settings;
    this.root.hidden = !settings.length;
    if (!this.other) draw(this.body, settings, () => all(settings));
  }

  compare(other) {
    this.asked?.stop();
    Object.assign(this, { other, asked: null });
    this.link.hidden = !other;
    draw(this.link, other, () => other && h("a", { class: "button", href: `#/run/${[this.runId, other].map(encodeURIComponent).join(",")}` }, "Compare curves"));
    if (!other) { this.show(this.settings); return; }
    const path = `/api/comparison?${new URLSearchParams([["run", this.runId], ["run", other]])}`;
    this.asked = this.asking(() => path, (answer) => draw(this.body, answer, () => differencesOf(answer)));
  }
}

/** What the spec names, and on request the rest. */
function all(settings) {
  const chosen = settings.filter((entry) => entry.chosen), rest = settings.filter((entry) => !entry.chosen);
  return [
    chosen.length > 0 && h("h3", {}, "From the spec"), chosen.length > 0 && list(chosen),
    rest.length > 0 && h("details", { open: !chosen.length }, h("summary", {}, chosen.length ? `Chosen by the plan: ${rest.length}` : `Values: ${rest.length}`), list(rest)),
  ];
}

function list(settings) {
  return h("dl", { class: "values" }, settings.map((entry) => h("div", {}, h("dt", {}, entry.path), h("dd", {}, setting(entry.value)))));
}
