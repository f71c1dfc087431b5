// One panel of curves as SVG: bands, lines, dots of evaluations, marks of events; a reader's cursor
// by pointer or keyboard; a part of the axis chosen by dragging.

import { h, svg } from "./dom.js";
import { tickWords, value } from "./format.js";
import { linearTicks, logTicks, nearest, smoothed, span } from "./scales.js";

const LEFT = 54, RIGHT = 16, BOTTOM = 26, TOP = 8, LABELS = 18;
const NEAR_PX = 5, DRAG_PX = 8, LETTER_PX = 6.2;
// Of 4 dashes and 5 shapes no two of 20 runs have the same pair: see `styleOf`.
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const SHAPES = ["M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0Z", "M-3.2 -3.2h6.4v6.4h-6.4Z", "M0 -4.2L4 3.2H-4Z",
  "M0 -4.6L4.6 0L0 4.6L-4.6 0Z", "M0 4.2L4 -3.2H-4Z"];
const SHAPE_EVERY_PX = 150;
let last = 0;

/** What distinguishes the curve with this number: its colour, its dash and the shape on it. */
export function styleOf(at) {
  return { tone: at % 8, dash: at % DASHES.length, shape: at % SHAPES.length };
}

export class Chart {
  /** `onZoom(first, last)`: a part of the x axis was chosen. */
  constructor({ tall = false, onZoom = null } = {}) {
    this.tall = tall;
    this.height = tall ? 320 : 180;
    this.onZoom = onZoom;
    this.model = null;
    this.cursor = null;
    this.clip = `clip-${(last += 1)}`;
    this.caption = h("figcaption", {});
    this.plot = h("div", { class: "plot", tabindex: 0, role: "group", "aria-roledescription": "chart" });
    this.tip = h("div", { class: "tip", role: "status", hidden: true });
    this.root = h("figure", { class: tall ? "chart tall" : "chart" }, this.caption,
      h("div", { class: "plot-box" }, this.plot, this.tip));
    this.plot.style.height = `${this.height}px`;
    this.listen();
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.plot);
  }

  /**
   * `model`: `title`, `xName`, `xWords(x)`, `log`, `weight` of smoothing, `fromZero`, `lines` and
   * `marks`; `whole`: x is an integer. A line: `label`, `short` for a legend, `tone`, `dash`,
   * `shape`, `marked` with it, `dots`, `x`, `y`, `low`, `high`. A mark: `kind`, `x`, `label`, `tone`.
   */
  show(model) {
    this.model = model;
    for (const line of model.lines) {
      line.drawn = line.dots || !model.weight ? line.y : smoothed(line.y, model.weight);
    }
    this.captionOf(model);
    this.draw();
  }

  close() {
    this.watch.disconnect();
  }

  captionOf(model) {
    this.caption.replaceChildren(
      h("span", { class: "chart-title" }, model.title, h("small", {}, ` by ${model.xName}`)),
      h("span", { class: "legend" }, model.lines.filter((line) => !model.several || !line.dots).slice(0, 8).map((line) => h("span", { class: "key" },
        swatch(line), h("span", {}, model.several ? this.tall && line.label : line.short), h("strong", {}, value(line.last))))));
    const words = model.lines.map((line) => `${line.label}: last ${value(line.last)}`).join("; ");
    this.plot.setAttribute("aria-label", `${model.title} over ${model.xName}. ${words || "No points yet"}. Arrow keys read values.`);
  }

  draw() {
    const model = this.model, width = this.plot.clientWidth;
    if (!model || width < 60) return;
    const points = model.lines.flatMap((line) => line.x);
    const root = svg("svg", { width, height: this.height, "aria-hidden": "true" });
    this.plot.replaceChildren(root);
    this.scale = null;
    if (!points.length) {
      root.append(svg("text", { x: width / 2, y: this.height / 2, class: "nothing" }, "no points yet"));
      return;
    }
    this.scale = this.scaled(model, width);
    root.append(
      svg("clipPath", { id: this.clip }, svg("rect", {
        x: LEFT - NEAR_PX, y: this.scale.top - NEAR_PX, width: width - LEFT - RIGHT + 2 * NEAR_PX, height: this.scale.bottom - this.scale.top + NEAR_PX })),
      this.grid(model), this.marks(model),
      svg("g", { "clip-path": `url(#${this.clip})` }, model.lines.map((line) => this.line(line, model))),
      svg("g", {}, model.lines.map((line, at) => line.marked && this.shapes(line, at / model.lines.length))),
      this.tall && this.labels(model));
    this.over = svg("g", { class: "cursor" });
    root.append(this.over);
    if (this.cursor !== null) this.point(this.cursor);
  }

  scaled(model, width) {
    const labelled = this.tall && model.marks.some((mark) => mark.kind !== "checkpoint");
    const top = TOP + (labelled ? LABELS : 0), bottom = this.height - BOTTOM;
    const [x0, x1] = span(model.lines.map((line) => line.x), 0);
    const shown = model.lines.map((line) => (line.low && !model.weight ? [...line.low, ...line.high] : line.drawn));
    let [y0, y1] = span(shown, 0.05);
    const log = model.log && shown.flat().some((one) => one > 0);
    if (log) {
      const above = shown.flat().filter((one) => one > 0 && Number.isFinite(one));
      y0 = above.reduce((low, one) => Math.min(low, one), Infinity) / 1.04;
      y1 = above.reduce((high, one) => Math.max(high, one), 0) * 1.04;
    } else if (model.fromZero) {
      [y0, y1] = [0, Math.max(y1, 1e-9)];
    }
    const y = log
      ? (one) => bottom - ((bottom - top) * (Math.log(one) - Math.log(y0))) / (Math.log(y1) - Math.log(y0) || 1)
      : (one) => bottom - ((bottom - top) * (one - y0)) / (y1 - y0 || 1);
    const x = (one) => LEFT + ((width - LEFT - RIGHT) * (one - x0)) / (x1 - x0 || 1);
    const back = (px) => x0 + ((px - LEFT) / (width - LEFT - RIGHT)) * (x1 - x0);
    return { top, bottom, width, x0, x1, y0, y1, x, y, back, log };
  }

  grid(model) {
    const { x, y, x0, x1, y0, y1, top, bottom, width, log } = this.scale;
    const ys = log ? logTicks(y0, y1) : linearTicks(y0, y1, Math.max(3, (bottom - top) / 44));
    const xs = linearTicks(x0, x1, Math.max(2, (width - LEFT - RIGHT) / 90), model.whole);
    const [xWords, yWords] = [tickWords(xs), tickWords(ys)];
    return svg("g", { class: "grid" },
      ys.map((one, at) => [
        svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(one), y2: y(one) }),
        svg("text", { x: LEFT - 8, y: y(one) + 3.5, class: "y" }, yWords[at])]),
      xs.map((one, at) => svg("text", { x: x(one), y: bottom + 16, class: "x" }, xWords[at])),
      svg("line", { x1: LEFT, x2: width - RIGHT, y1: bottom, y2: bottom, class: "axis" }));
  }

  line(line, model) {
    const { x, y, log } = this.scale;
    const fits = (one) => Number.isFinite(one) && (!log || one > 0);
    const path = (values) => {
      let open = false;
      return values.map((one, at) => {
        if (!fits(one)) { open = false; return ""; }
        const step = `${open ? "L" : "M"}${x(line.x[at]).toFixed(1)} ${y(one).toFixed(1)}`;
        open = true;
        return step;
      }).join("");
    };
    const parts = [];
    if (line.low && !log && !model.weight) {
      const around = line.x.map((_, at) => at).filter((at) => fits(line.low[at]) && fits(line.high[at]));
      const upper = around.map((at) => `${x(line.x[at]).toFixed(1)} ${y(line.high[at]).toFixed(1)}`);
      const lower = around.reverse().map((at) => `${x(line.x[at]).toFixed(1)} ${y(line.low[at]).toFixed(1)}`);
      if (upper.length > 1) parts.push(svg("path", { class: "band", d: `M${[...upper, ...lower].join("L")}Z` }));
    }
    if (model.weight && !line.dots) parts.push(svg("path", { class: "raw", d: path(line.y) }));
    parts.push(svg("path", { class: line.dots ? "joined" : "curve", d: path(line.drawn),
      "stroke-dasharray": line.dots ? "3 3" : DASHES[line.dash ?? 0] }));
    if (line.dots || line.x.length === 1) {
      line.x.forEach((one, at) => fits(line.y[at])
        && parts.push(shape(line, x(one), y(line.y[at]), line.x.length > 80 ? 0.6 : 1)));
    }
    line.y.forEach((one, at) => Number.isFinite(one)
      || parts.push(svg("text", { class: "bad", x: x(line.x[at]), y: this.scale.top + 10 }, "✕")));
    return svg("g", { class: `line tone-${line.tone}` }, parts);
  }

  /** The shape of a curve in places of its own, so that curves which coincide are all seen. */
  shapes(line, share) {
    const { x, y, log, width } = this.scale, parts = [];
    const put = (at) => {
      const one = line.drawn[at];
      if (Number.isFinite(one) && (!log || one > 0)) parts.push(shape(line, x(line.x[at]), y(one), 1));
    };
    for (let px = LEFT + SHAPE_EVERY_PX * (share + 0.1); px < width - RIGHT && line.x.length; px += SHAPE_EVERY_PX) {
      const at = nearest(line.x, this.scale.back(px));
      if (Math.abs(x(line.x[at]) - px) < SHAPE_EVERY_PX / 4) put(at);
    }
    if (!parts.length && line.x.length) put(Math.floor(share * line.x.length));
    return svg("g", { class: `tone-${line.tone}` }, parts);
  }

  marks(model) {
    const { x, top, bottom, x0, x1 } = this.scale;
    const shown = model.marks.filter((mark) => mark.x !== null && mark.x >= x0 && mark.x <= x1);
    return svg("g", {}, shown.map((mark) => {
      const at = x(mark.x);
      if (mark.kind === "checkpoint") {
        return svg("path", { class: "mark checkpoint", d: `M${at} ${bottom - 6}l4 6h-8z` });
      }
      const tone = mark.tone === null ? "" : ` tone-${mark.tone}`;
      return svg("line", { class: `mark ${mark.kind}${tone}`, x1: at, x2: at, y1: this.tall ? top - 2 : top, y2: bottom });
    }));
  }

  /** The names of marks, as far as they don't overlap; the cursor reads all of them. */
  labels(model) {
    const { x, top, x0, x1, width } = this.scale;
    let free = LEFT - 8;
    const placed = model.marks
      .filter((mark) => mark.kind !== "checkpoint" && mark.x !== null && mark.x >= x0 && mark.x <= x1)
      .sort((one, other) => one.x - other.x);
    return svg("g", { class: "mark-labels" }, placed.map((mark) => {
      const at = x(mark.x), words = `${SIGNS[mark.kind] ?? SIGNS.finding} ${mark.short}`;
      const size = words.length * LETTER_PX;
      const begin = Math.max(LEFT - 8, Math.min(at - 4, width - RIGHT - size));
      if (begin < free) return at < free ? null : svg("text", { class: `label ${mark.kind}`, x: at, y: top - 6 }, words[0]);
      free = begin + size + 8;
      const tone = mark.tone === null ? "" : ` tone-${mark.tone}`;
      return svg("text", { class: `label ${mark.kind}${tone}`, x: begin, y: top - 6 }, words);
    }));
  }

  listen() {
    let from = null;
    const place = (event) => event.clientX - this.plot.getBoundingClientRect().left;
    const inside = (px) => Math.max(LEFT, Math.min(this.scale.width - RIGHT, px));
    this.plot.addEventListener("pointermove", (event) => {
      if (!this.scale) return;
      if (from !== null) this.select(from, inside(place(event)));
      else this.point(this.scale.back(inside(place(event))));
    });
    this.plot.addEventListener("pointerdown", (event) => {
      if (!this.scale || !this.onZoom || event.pointerType === "touch" || event.button) return;
      from = inside(place(event));
      this.plot.setPointerCapture(event.pointerId);
    });
    this.plot.addEventListener("pointerup", (event) => {
      const [first, end] = [from, this.scale && inside(place(event))];
      from = null;
      if (first === null || Math.abs(end - first) < DRAG_PX) return;
      this.leave();
      this.onZoom(...[this.scale.back(first), this.scale.back(end)].sort((one, other) => one - other));
    });
    this.plot.addEventListener("pointerleave", () => { if (from === null) this.leave(); });
    this.plot.addEventListener("blur", () => this.leave());
    this.plot.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const line = this.model?.lines[0];
    if (!line?.x.length || !this.scale) return;
    const at = this.cursor === null ? line.x.length - 1 : nearest(line.x, this.cursor);
    const far = event.shiftKey ? 10 : 1, end = line.x.length - 1;
    const to = { ArrowLeft: this.cursor === null ? at : at - far, ArrowRight: at + far, Home: 0, End: end }[event.key];
    if (event.key === "Escape") this.leave();
    if (to === undefined) return;
    event.preventDefault();
    this.point(line.x[Math.max(0, Math.min(end, to))]);
  }

  leave() {
    this.cursor = null;
    this.tip.hidden = true;
    this.over?.replaceChildren();
  }

  select(from, to) {
    this.tip.hidden = true;
    const { top, bottom } = this.scale;
    this.over.replaceChildren(svg("rect", { class: "selected", x: Math.min(from, to), y: top, width: Math.abs(to - from), height: bottom - top }));
  }

  /** The values at the points that are nearest to `at`, and the marks there. */
  point(at) {
    const { x, y, top, bottom, width, log } = this.scale;
    const found = this.model.lines.filter((line) => line.x.length)
      .map((line) => ({ line, at: nearest(line.x, at) }));
    const [closest] = found.map((one) => one.line.x[one.at])
      .sort((one, other) => Math.abs(one - at) - Math.abs(other - at));
    this.cursor = closest;
    const px = x(closest);
    const near = found.filter((one) => Math.abs(x(one.line.x[one.at]) - px) < 24);
    const marks = this.model.marks.filter((mark) => mark.x !== null && Math.abs(x(mark.x) - px) <= NEAR_PX);
    this.over.replaceChildren(
      svg("line", { x1: px, x2: px, y1: top, y2: bottom }),
      ...near.filter((one) => Number.isFinite(one.line.drawn[one.at]) && (!log || one.line.drawn[one.at] > 0))
        .map((one) => svg("circle", { class: `tone-${one.line.tone}`, r: 4, cx: x(one.line.x[one.at]), cy: y(one.line.drawn[one.at]) })));
    this.tip.replaceChildren(
      h("strong", {}, this.model.xWords(closest)),
      ...near.map((one) => h("div", {}, swatch(one.line), `${one.line.label} `, h("b", {}, value(one.line.y[one.at])),
        one.line.low && one.line.low[one.at] !== one.line.high[one.at]
          ? h("small", {}, ` ${value(one.line.low[one.at])} … ${value(one.line.high[one.at])}`) : null)),
      ...marks.map((mark) => h("div", { class: `said ${mark.kind}` }, mark.label)));
    this.tip.hidden = false;
    const size = this.tip.offsetWidth;
    this.tip.style.left = `${px + size + 18 > width ? Math.max(0, px - size - 12) : px + 12}px`;
    this.tip.style.top = `${top + 4}px`;
  }
}

const SIGNS = { restart: "↻", phase: "▸", warning: "▲", critical: "▲", finding: "▲" };

function shape(line, x, y, size) {
  return svg("path", { class: line.dots ? "dot evaluation" : "dot", d: SHAPES[line.shape ?? 0], transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size})` });
}

export function swatch(line) {
  return svg("svg", { class: `swatch tone-${line.tone}`, width: 34, height: 12, "aria-hidden": "true" },
    svg("line", { class: line.dots ? "joined" : "curve", x1: 1, x2: 33, y1: 6, y2: 6, "stroke-dasharray": line.dots ? "3 3" : DASHES[line.dash ?? 0] }),
    (line.dots || line.marked) && shape(line, 17, 6, 1));
}
