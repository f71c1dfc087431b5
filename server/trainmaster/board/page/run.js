// One run, or the curves of several side by side.

import { Curves } from "./curves.js";
import { Comparison } from "./comparison.js";
import { advice, command, draw, drawEach, h, isOpen, nextStep, progress, stateChip } from "./dom.js";
import { duration, setting, usd, value } from "./format.js";
import { checkpoints, samples } from "./made.js";
import { Settings } from "./settings.js";
import { grid, tile } from "./machines.js";

export function runPage(main, asking, ids) {
  const head = h("section", { class: "run-head" }), below = h("div", {});
  const parts = { tiles: h("div", { class: "tiles" }), findings: h("section", {}), attempts: h("section", {}),
    checkpoints: h("section", { class: "checkpoints" }), samples: h("section", { class: "written" }), log: h("section", {}) };
  const curves = new Curves(asking, ids);
  main.append(h("p", { class: "back" }, h("a", { href: "#/runs" }, "← Runs")), head);
  if (ids.length > 1) {
    head.append(h("h1", {}, `${ids.length} runs compared`));
    const comparison = new Comparison(asking, ids);
    main.append(comparison.root, curves.root);
    document.title = "Compare · Trainmaster";
    return () => { comparison.stop(); curves.stop(); };
  }
  const settings = new Settings(asking, ids[0]);
  main.append(parts.tiles, curves.root, below);
  below.append(parts.findings, parts.attempts, parts.checkpoints, parts.samples, settings.root, parts.log);
  const asked = asking(() => `/api/run?run=${encodeURIComponent(ids[0])}`, (answer) => {
    show(head, parts, answer);
    settings.show(answer.settings);
  });
  return () => { asked.stop(); curves.stop(); settings.stop(); };
}

function show(head, parts, answer) {
  const { status, diagnosis } = answer;
  document.title = `${status.name ?? status.run_id} · ${status.state} · Trainmaster`;
  draw(head, [status.name, status.state, status.reason, status.next_step, status.unreachable, status.past], () => heading(status));
  draw(parts.tiles, status, () => tiles(status));
  findings(parts.findings, diagnosis.findings, answer.patches);
  draw(parts.attempts, status.attempts, () => attempts(status.attempts ?? []));
  draw(parts.checkpoints, [answer.checkpoints, answer.resume_from], () => checkpoints(answer));
  draw(parts.samples, answer.samples, () => samples(answer.samples));
  draw(parts.log, answer.untrusted_lines, () => log(answer.untrusted_lines));
}

function heading(status) {
  return [
    h("div", { class: "bar-row" }, h("h1", {}, status.name), stateChip(status.state),
      status.reason !== status.state && h("span", { class: "reason" }, status.reason), h("span", { class: "spacer" }),
      h("code", { class: "id" }, status.run_id)),
    status.untrusted_detail && h("p", { class: "quoted" }, status.untrusted_detail),
    status.unreachable && h("p", { class: "notice" }, "Not reached: ", status.unreachable),
    status.past && h("p", { class: "past" }, "Findings: ", status.past),
    nextStep(status.next_step),
  ];
}

// What says more than the loss does, in the methods that report it.
const HEADLINES = [["reward", "Reward"], ["rewards/margins", "Reward margin"], ["margin", "Margin"]];

function tiles(status) {
  const { metrics, checkpoint, cost, goodput } = status, loss = metrics.loss ?? metrics.val_loss;
  return [
    h("div", { class: "tile wide" }, h("span", { class: "tile-name" }, "Step"), progress(status.step, status.target_step, status.state),
      h("span", { class: "tile-remark" }, [!status.step && !isOpen(status.state) && "no steps reported", `attempt ${status.attempt} on ${status.host}`, status.preparation && `preparing: ${status.preparation.step}`].filter(Boolean).join(", "))),
    ...HEADLINES.filter(([key]) => metrics[key] !== undefined).map(([key, name]) => tile(name, value(metrics[key]))),
    (isOpen(status.state) || loss !== undefined) && tile("Loss", value(metrics.loss), metrics.val_loss === undefined ? null : `val ${value(metrics.val_loss)}`),
    status.phase !== undefined && tile("Phase", status.phase.name, `${status.phase.number} of ${status.phase.count}, to step ${status.phase.ends.toLocaleString("en-US")}`),
    status.eta_s !== undefined && tile("To go", duration(status.eta_s)),
    metrics.tokens_per_s !== undefined && tile("Tokens/s", value(metrics.tokens_per_s), metrics.mfu === undefined ? null : `MFU ${value(metrics.mfu)}`),
    checkpoint && tile("Checkpoint", `step ${checkpoint.step.toLocaleString("en-US")}`, checkpoint.mirrored_step === undefined ? "verified" : `verified; copied: ${checkpoint.mirrored_step.toLocaleString("en-US")}`),
    goodput && tile("Training time", `${Math.round(100 * goodput.ettr)}%`, lostTime(goodput)),
    cost && tile("Cost", usd(cost.usd), cost.usd_per_h === undefined ? null : `${usd(cost.usd_per_h)}/h`),
  ];
}

function lostTime({ lost_s: lost, lost_usd: dollars }) {
  const words = Object.entries(lost).slice(0, 3).map(([cause, seconds]) =>
    `${cause} ${duration(seconds)}${dollars?.[cause] === undefined ? "" : ` (${usd(dollars[cause])})`}`);
  return words.length ? `lost: ${words.join(", ")}` : null;
}

/** A card each, of which only those that have changed are drawn again. */
function findings(section, found, patches) {
  if (!section.firstChild) section.append(h("h2", {}, "Findings"), h("div", {}), h("p", { class: "empty small" }, "None."));
  const own = (one) => patches.filter((patch) => patch.finding === one.id);
  drawEach(section.children[1], found, (one) => one.id, () => h("div", {}),
    (one) => [one, own(one)], (one) => finding(one, own(one)));
  section.lastChild.hidden = found.length > 0;
}

function finding(one, patches) {
  const where = [one.step !== undefined && `step ${one.step.toLocaleString("en-US")}`, one.attempt && `attempt ${one.attempt}`,
    `${Math.round(100 * one.confidence)}% sure`].filter(Boolean).join(" · ");
  return h("article", { class: "finding-card", "data-severity": one.over ? "over" : one.severity, "data-finding": one.id },
    h("header", {}, h("span", { class: "sign", "aria-hidden": "true" }, one.over ? "✓" : one.severity === "info" ? "i" : "▲"),
      h("h3", {}, one.code), h("span", { class: "chip" }, one.over ? "over" : one.severity), h("span", { class: "where" }, where)),
    h("p", {}, advice(one.explanation)),
    one.evidence.length > 0 && h("pre", { class: "untrusted", title: "From the log; anybody may have written it" }, one.evidence.join("\n")),
    one.advice.length > 0 && h("ul", {}, one.advice.map((line) => h("li", {}, advice(line)))),
    one.patches.map((patch) => patched(patch, patches.find((known) => known.patch === patch.id))));
}

function patched(patch, known) {
  return h("div", { class: "patch" },
    h("div", { class: "patch-head" }, h("strong", {}, patch.id), patch.tried && h("span", { class: "chip" }, "tried before"),
      h("span", {}, patch.why)),
    h("table", { class: "diff" }, h("tbody", {},
      Object.entries(patch.set).map(([path, set]) => h("tr", {}, h("th", { scope: "row" }, path),
        h("td", { class: "old" }, setting(patch.expected[path] ?? null)), h("td", { "aria-label": "becomes" }, "→"),
        h("td", { class: "new" }, setting(set)))),
      h("tr", {}, h("th", { scope: "row" }, "resume from"), h("td", { colspan: 3 }, `${patch.from}${patch.skip ? `, skips ${setting(patch.skip)}` : ""}`)))),
    known && command(known.next_step));
}

function attempts(rows) {
  if (rows.length < 2) return [];
  const changed = (row) => Object.entries(row.changed ?? {}).map(([path, [from, to]]) => h("div", {}, `${path}: ${setting(from)} → ${setting(to)}`));
  return [h("h2", {}, "Attempts"), grid(["Attempt", "Why", "By", "Steps", "Ended", "Changed"], rows.map((row) => [
    row.number, row.why, row.by ?? "–", row.last_step === undefined ? row.started_at_step === undefined ? "–" : `from ${row.started_at_step}` : `${row.started_at_step ?? 0} – ${row.last_step}`,
    row.reason ?? "–", changed(row)]), { numbers: [0] })];
}

function log(lines) {
  if (!lines.length) return [];
  return [h("h2", {}, "Log"), h("pre", { class: "untrusted log", tabindex: 0, "aria-label": "The end of the log" }, lines.join("\n"))];
}
