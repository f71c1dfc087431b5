// The board in a client with MCP Apps: draws the result of overview or list_runs that is posted to it.

import { draw, h, nextStep, progress, stateChip } from "./dom.js";

const main = document.getElementById("main");
const waiting = new Map();
let last = 0, canCall = false;

function send(message) {
  parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
}

function request(method, params) {
  last += 1;
  send({ id: last, method, params });
  return new Promise((resolve, reject) => waiting.set(last, { resolve, reject }));
}

const HANDLERS = {
  "ui/notifications/tool-result": show,
  "ui/notifications/host-context-changed": setContext,
};

addEventListener("message", ({ source, data }) => {
  if (source !== parent || data?.jsonrpc !== "2.0") return;
  if (data.method === undefined) {
    const { resolve, reject } = waiting.get(data.id) ?? {};
    waiting.delete(data.id);
    if (data.error) reject?.(data.error); else resolve?.(data.result);
  } else if (data.id === undefined) {
    HANDLERS[data.method]?.(data.params ?? {});
  } else if (data.method === "ping" || data.method === "ui/resource-teardown") {
    send({ id: data.id, result: {} });
  } else {
    send({ id: data.id, error: { code: -32601, message: "Unknown method" } });
  }
});

function setContext(context) {
  if (context?.theme) document.documentElement.dataset.theme = context.theme;
}

/** Draw a tool's result: its structured content, or where there is none its text. */
function show(result) {
  const answer = result.structuredContent;
  const text = (result.content ?? []).map((block) => block.text ?? "").join("\n");
  draw(main, result, () => [
    answer?.attention ? overview(answer) : answer?.runs ? runs(answer.runs) : h("p", { class: "notice" }, text),
    answer && canCall && again(answer.attention ? "overview" : "list_runs"),
  ]);
}

function overview(answer) {
  const parts = [["Needs attention", answer.attention], ["Running", answer.running], ["Ended", answer.ended]];
  const lists = parts.filter(([, lines]) => lines?.length).map(([title, lines], at) =>
    h("section", { class: title === parts[0][0] ? "attention" : "", "data-part": at, "aria-label": title },
      h("h2", {}, title), h("ul", {}, lines.map((line) => h("li", {}, line)))));
  return [lists.length ? lists : h("p", { class: "empty" }, "No runs yet."), answer.next_step && nextStep(answer.next_step)];
}

function runs(rows) {
  if (!rows.length) return h("p", { class: "empty" }, "No runs.");
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Run", "State", "Progress"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((run) => h("tr", {},
      h("th", { scope: "row", class: "name" }, run.name, " ", h("small", {}, run.host)),
      h("td", {}, stateChip(run.state)),
      h("td", {}, progress(run.step, run.target_step)))))));
}

function again(name) {
  return h("p", {}, h("button", { type: "button", class: "quiet", on: {
    click: async () => show(await request("tools/call", { name, arguments: {} })),
  } }, "Refresh"));
}

new ResizeObserver(() => send({
  method: "ui/notifications/size-changed",
  params: { height: Math.ceil(document.documentElement.getBoundingClientRect().height) },
})).observe(document.documentElement);

const begun = await request("ui/initialize", {
  protocolVersion: "2026-01-26",
  appInfo: { name: "trainmaster-board", version: "1" },
  appCapabilities: {},
});
canCall = Boolean(begun.hostCapabilities?.serverTools);
setContext(begun.hostContext);
send({ method: "ui/notifications/initialized", params: {} });
