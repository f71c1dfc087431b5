// Hosts, rented instances and what they cost.

import { draw, h } from "./dom.js";
import { ago, moment, usd } from "./format.js";

const EVERY_MS = 5000;

export function machinesPage(main, asking) {
  const tiles = h("div", { class: "tiles" }), hosts = h("section", {}), costs = h("section", {});
  main.append(h("div", { class: "bar-row" }, h("h1", {}, "Machines")), tiles, hosts, costs);
  document.title = "Machines · Trainmaster";
  return asking(() => "/api/machines", (answer) => {
    draw(tiles, answer.costs, () => totals(answer.costs));
    draw(hosts, answer.hosts, () => [h("h2", {}, "Hosts"), hostTable(answer.hosts)]);
    draw(costs, answer.costs, () => rented(answer.costs));
  }, EVERY_MS).stop;
}

function totals(costs) {
  const open = costs.instances.filter((one) => !one.ended_at);
  const volumes = (costs.volumes ?? []).filter((one) => !one.ended_at);
  const rate = [...open, ...volumes].reduce((sum, one) => sum + one.usd_per_h, 0);
  return [
    tile("Spent", usd(costs.spent_usd)), tile("Committed", usd(costs.committed_usd), "at most, for open leases"),
    tile("Now", `${usd(rate)}/h`, [
      counted(open.length, "instance"), ...(volumes.length ? [counted(volumes.length, "volume")] : [])].join(", ")), tile("Cap", usd(costs.max_usd_total)),
  ];
}

export function tile(name, shown, remark = null) {
  return h("div", { class: "tile" }, h("span", { class: "tile-name" }, name),
    h("span", { class: "tile-value" }, shown), remark && h("span", { class: "tile-remark" }, remark));
}

/** A table; `numbers`: the columns that hold some. */
export function grid(columns, rows, { numbers = [] } = {}) {
  return h("div", { class: "scroll" }, h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, at) =>
      h("td", { "data-label": columns[at], class: numbers.includes(at) ? "number" : null }, cell)))))));
}

function hostTable(hosts) {
  return grid(["Host", "State", "Address", "GPUs", "Open runs", "Last seen", "Price"], hosts.map((one) => [
    h("strong", {}, one.name),
    [h("span", { class: "chip host", "data-state": one.state }, one.state), one.untrusted_reason && h("small", {}, one.untrusted_reason)],
    one.address, (one.gpus ?? []).join(", ") || "–", one.open_runs, ago(one.as_of),
    one.usd_per_h ? `${usd(one.usd_per_h)}/h` : "–",
  ]));
}

function counted(number, name) {
  return `${number} ${name}${number === 1 ? "" : "s"}`;
}

function rented(costs) {
  const runs = Object.entries(costs.runs).sort((one, other) => other[1] - one[1]);
  return [
    costs.instances.length > 0 && h("h2", {}, "Rented instances"),
    costs.instances.length > 0 && grid(["Host", "Provider", "State", "Per hour", "Spent", "Of it training", "Budget", "Lease ends"], costs.instances.map((one) => [
      h("strong", {}, one.host), one.provider, one.state, usd(one.usd_per_h), usd(one.spent_usd), one.training_share === undefined ? "–" : `${Math.round(100 * one.training_share)}%`, usd(one.budget_usd),
      one.ended_at ? `ended ${when(one.ended_at)}` : when(one.lease_ends_at),
    ])),
    costs.volumes && h("h2", {}, "Volumes"),
    costs.volumes && grid(["Volume", "Provider", "State", "Size", "A month", "Spent", "Used by", "Lease ends"], costs.volumes.map((one) => [
      h("strong", {}, one.volume), `${one.provider} ${one.region}`, one.state, `${one.size_gb} GB`, usd(one.usd_per_month),
      usd(one.spent_usd), one.used_by ?? "–", one.ended_at ? `ended ${when(one.ended_at)}` : when(one.lease_ends_at),
    ])),
    runs.length > 0 && h("h2", {}, "By run"),
    runs.length > 0 && grid(["Run", "Spent"], runs.map(([run, spent]) => [
      h("a", { href: `#/run/${encodeURIComponent(run)}` }, run), usd(spent)])),
  ];
}

function when(iso) {
  return iso ? moment(Date.parse(iso) / 1000) : "–";
}
