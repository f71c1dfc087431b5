// What a run has made: checkpoints, and texts that its model wrote.

import { h } from "./dom.js";
import { bytes, figure, moment } from "./format.js";
import { grid } from "./machines.js";

export function checkpoints({ checkpoints: rows, metric, resume_from: resumeFrom }) {
  if (!rows.length) return [];
  const others = metric === "loss" ? [] : [metric];
  const shown = others.filter((key) => rows.some((row) => row.metrics[key] !== undefined));
  return [h("h2", {}, "Checkpoints"), grid(["Step", "Verified", "loss", ...shown, "Size", "Saved", ""], rows.map((row) => [
    row.step.toLocaleString("en-US"), verified(row.verified), figure(row.loss), ...shown.map((key) => figure(row.metrics[key])),
    bytes(row.size_bytes), moment(row.time),
    [row.tags.map((tag) => h("span", { class: "chip" }, tag)), row.superseded && h("span", { class: "chip" }, "superseded"),
      row.step === resumeFrom && h("span", { class: "chip" }, "resume starts here")],
  ]), { numbers: [0, 2, ...shown.map((_, at) => 3 + at), 3 + shown.length] })];
}

function verified(isWhole) {
  if (isWhole === null || isWhole === undefined) return h("span", { class: "none" }, "not yet");
  return h("span", { class: "chip", "data-state": isWhole ? "ok" : "failed" }, isWhole ? "✓ verified" : "✕ damaged");
}

/** Whatever a model wrote stays text. */
export function samples(rows) {
  if (!rows.length) return [];
  return [h("h2", {}, "Samples"), h("div", { class: "samples" }, rows.map((row) =>
    h("figure", { class: "sample" },
      h("figcaption", {}, h("strong", {}, `step ${row.step.toLocaleString("en-US")}`), h("small", {}, `attempt ${row.attempt}`)),
      row.untrusted_prompt && h("p", { class: "prompt" }, h("small", {}, "Prompt"), row.untrusted_prompt),
      h("p", {}, row.untrusted_text || h("small", {}, row.untrusted_detail ? `no text: ${row.untrusted_detail}` : "no text")))))];
}
