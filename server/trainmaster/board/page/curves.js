// The panels of one or several runs, and how they are looked at.

import { Chart, styleOf } from "./chart.js";
import { draw, h, isOpen } from "./dom.js";
import { count, duration } from "./format.js";
import { placed } from "./scales.js";

const SMOOTHING = [["Off", 0], ["Light", 0.6], ["Medium", 0.9], ["Strong", 0.97]];
const EVALUATION = /^(val_|eval_)|^train_loss_eval$/;

export class Curves {
  constructor(asking, ids) {
    Object.assign(this, { ids, axis: "step", log: false, weight: 0, extra: [], zoom: null, answer: null, charts: new Map() });
    this.panels = h("div", { class: "panels" });
    this.more = h("select", { "aria-label": "Add a metric", on: { change: () => this.add(this.more.value) } });
    this.whole = h("button", { type: "button", class: "quiet", hidden: true, on: { click: () => this.zoomTo(null) } }, "Whole run");
    this.controls = h("div", { class: "bar-row controls" }, this.axes(), this.scale(), this.smoothing(), this.more, this.whole);
    this.root = h("section", { class: "curves", "aria-label": "Curves" }, this.controls, this.panels);
    this.asked = asking(() => this.path(), (answer) => { this.answer = answer; this.show(); });
  }

  stop() {
    this.asked.stop();
    for (const chart of this.charts.values()) chart.close();
  }

  path() {
    const asked = new URLSearchParams([...this.ids.map((id) => ["run", id]), ...this.extra.map((key) => ["key", key])]);
    if (this.axis !== "step") asked.set("x", this.axis);
    if (this.zoom && this.axis === "step") [asked.set("from", this.zoom[0]), asked.set("to", this.zoom[1])];
    return `/api/curves?${asked}`;
  }

  axes() {
    return segments("Axis", [["Step", "step"], ["Tokens", "tokens"], ["Time", "time"]], this.axis, (axis) => {
      this.axis = axis;
      this.zoomTo(null);
    });
  }

  scale() {
    const button = h("button", { type: "button", "aria-pressed": false, on: { click: () => {
      this.log = !this.log;
      button.setAttribute("aria-pressed", this.log);
      this.show();
    } } }, "Log scale");
    return h("div", { class: "segments" }, button);
  }

  smoothing() {
    const select = h("select", { on: { change: () => { this.weight = Number(select.value); this.show(); } } },
      SMOOTHING.map(([name, weight]) => h("option", { value: weight }, name)));
    return h("label", {}, "Smoothing ", select);
  }

  add(key) {
    if (key) this.extra = this.extra.includes(key) ? this.extra.filter((one) => one !== key) : [...this.extra, key];
    this.asked.again();
  }

  zoomTo(zoom) {
    this.zoom = zoom;
    this.whole.hidden = zoom === null;
    this.asked.again();
  }

  show() {
    const { answer } = this;
    if (!answer) return;
    draw(this.more, [answer.keys, this.extra], () => [h("option", { value: "" }, "Add metric…"),
      answer.keys.map((key) => h("option", { value: key }, this.extra.includes(key) ? `✓ ${key}` : key))]);
    this.more.value = "";
    this.more.hidden = !answer.keys.length;
    const runs = answer.runs;
    const wanted = answer.panels.map((panel) => panel.keys.join());
    for (const [name, chart] of this.charts) {
      if (!wanted.includes(name)) { chart.close(); chart.root.remove(); this.charts.delete(name); }
    }
    answer.panels.forEach((panel, at) => {
      const chart = this.chart(panel, at);
      if (this.panels.children[at] !== chart.root) this.panels.insertBefore(chart.root, this.panels.children[at] ?? null);
      chart.show(this.model(panel, at === 0));
    });
    this.controls.hidden = !answer.panels.length;
    const words = runs.some((run) => isOpen(run.state)) ? "No metrics yet." : "No metrics were read from the log.";
    if (!answer.panels.length) draw(this.panels, words, () => h("p", { class: "empty" }, words));
    else this.panels.querySelector(".empty")?.remove();
  }

  chart(panel, at) {
    const name = panel.keys.join();
    if (!this.charts.has(name)) {
      const onZoom = panel.by_time ? null : (first, last) => this.axis === "step" && this.zoomTo([Math.max(0, Math.floor(first)), Math.max(0, Math.ceil(last))]);
      this.charts.set(name, new Chart({ tall: at === 0, onZoom }));
    }
    return this.charts.get(name);
  }

  model(panel, first) {
    const { runs } = this.answer, several = runs.length > 1;
    const places = runs.map((run) => this.places(panel, run));
    const lines = runs.flatMap((run, at) => panel.keys.filter((key) => run.series[key]?.steps.length).map((key) =>
      lineOf(run, key, places[at].of(run.series[key]), styleOf(several ? at : panel.keys.indexOf(key)), several)));
    const marked = several || lines.filter((line) => !line.dots).length > 1;
    for (const line of lines) Object.assign(line, { marked: marked && !line.dots, short: shortOf(line.key, panel.keys) });
    const timed = panel.by_time || this.axis === "time";
    const longest = timed ? Math.max(0, ...lines.map((line) => line.x.at(-1))) : 0;
    const unit = timed ? unitOf(longest) : null;
    const marks = runs.flatMap((run, at) => run.marks
      .filter((mark) => shows(mark, first, several))
      .map((mark) => ({ ...looked(mark), x: places[at].mark(mark), tone: several ? styleOf(at).tone : null })));
    for (const one of unit ? [...lines, ...marks] : []) one.x = Array.isArray(one.x) ? one.x.map((x) => x / unit.size) : one.x === null ? null : one.x / unit.size;
    const xName = timed ? unit.name : this.axis;
    const xWords = (x) => (timed ? duration(x * unit.size) : this.axis === "tokens" ? `${count(x)} tokens` : `step ${x.toLocaleString("en-US")}`);
    const whole = !timed && this.axis === "step";
    return { several, whole, title: panel.title, xName, xWords, lines, marks, log: this.log && !panel.by_time, weight: this.weight, fromZero: panel.by_time };
  }

  /** Where points and marks of a run stand: by step, by tokens, or by seconds. */
  places(panel, run) {
    if (panel.by_time) {
      return { of: (series) => series.steps.map((ms) => ms / 1000 - run.began_t), mark: (mark) => 60 * mark.minute };
    }
    if (this.axis === "step") return { of: (series) => series.steps, mark: (mark) => mark.step ?? null };
    const clock = Object.values(run.series).find((series) => series.x?.length);
    return { of: (series) => series.x ?? [], mark: (mark) => placed(mark.step, clock?.steps ?? [], clock?.x ?? []) };
  }
}

/** Of several runs only what interrupts their curves. */
function shows(mark, first, several) {
  if (mark.kind === "checkpoint") return first && !several;
  return mark.kind !== "phase" || !several;
}

function lineOf(run, key, x, style, several) {
  const series = run.series[key], numbers = (list) => list?.map(Number);
  const dots = EVALUATION.test(key);
  return {
    ...style, key, dots, x, label: several ? `${run.run_id}${dots ? ` ${key}` : ""}` : key, last: series.last,
    y: numbers(series.values), low: numbers(series.lows), high: numbers(series.highs),
  };
}

/** What a legend calls a key among those of its panel, whose title names what they have in common. */
function shortOf(key, keys) {
  const bare = (name) => name.replace(/^val_/, ""), bases = new Set(keys.map(bare));
  const own = bases.size > 1 ? bare(key).split("/").at(-1) : "";
  return key === bare(key) || keys.length === 1 ? own : `val ${own}`.trim();
}

function looked(mark) {
  const kind = mark.kind !== "finding" ? mark.kind : mark.critical ? "critical" : "warning";
  return { kind, label: mark.label, short: mark.kind === "restart" ? mark.label.split(":")[0] : mark.label };
}

function unitOf(seconds) {
  return [[172800, 86400, "days"], [7200, 3600, "hours"], [120, 60, "minutes"]].filter(([from]) => seconds >= from)
    .map(([, size, name]) => ({ size, name }))[0] ?? { size: 1, name: "seconds" };
}

function segments(name, options, chosen, choose) {
  const group = h("div", { class: "segments", role: "group", "aria-label": name });
  for (const [words, option] of options) {
    group.append(h("button", { type: "button", "aria-pressed": option === chosen, on: { click: (event) => {
      for (const one of group.children) one.setAttribute("aria-pressed", one === event.target);
      choose(option);
    } } }, words));
  }
  return group;
}
