// Which page is shown, by what stands behind the # of the address.

import { poll, takeToken } from "./client.js";
import { h } from "./dom.js";
import { machinesPage } from "./machines.js";
import { runPage } from "./run.js";
import { runsPage } from "./runs.js";

const main = document.getElementById("main");
const live = document.getElementById("live");
const problems = new Map();
let stop = () => {};

function route() {
  if (location.hash.startsWith("#token=")) takeToken();
  stop();
  const [page = "runs", rest = ""] = location.hash.replace(/^#\/?/, "").split("/");
  const chosen = rest.split(",").filter(Boolean).map(decodeURIComponent);
  for (const link of document.querySelectorAll("nav a")) {
    const current = link.dataset.page === page || (page === "run" && link.dataset.page === "runs");
    if (current) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  main.replaceChildren();
  scrollTo(0, 0);
  problems.clear();
  const asking = (path, show, every) => {
    const part = Symbol();
    return poll(path, show, (error) => says(part, error), every);
  };
  if (page === "machines") stop = machinesPage(main, asking);
  else if (page === "run" && chosen.length) stop = runPage(main, asking, chosen);
  else stop = runsPage(main, asking);
}

/** Show that the page is up to date, or why a part of it is not. */
function says(part, found) {
  if (found === null) problems.delete(part); else problems.set(part, found);
  const [error = null] = problems.values();
  if (error === null) {
    live.dataset.is = "live";
    live.textContent = "live";
    document.getElementById("refused")?.remove();
    return;
  }
  live.dataset.is = "off";
  live.textContent = error.code ? "no answer" : "not connected";
  const words = error.code
    ? [h("strong", {}, error.message), " ", error.fix]
    : [h("strong", {}, "The board does not answer."), " Start `trainmaster board` again, and open its address."];
  const notice = h("p", { id: "refused", class: "notice", role: "alert" }, words);
  const shown = document.getElementById("refused");
  if (shown) { if (shown.textContent !== notice.textContent) shown.replaceWith(notice); } else main.before(notice);
}

const THEMES = ["auto", "light", "dark"];
const button = document.getElementById("theme");

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.replaceChildren({ auto: "◐", light: "☀", dark: "☾" }[theme], h("span", {}, ` ${theme[0].toUpperCase()}${theme.slice(1)}`));
  button.setAttribute("aria-label", `Colours: ${theme}`);
  localStorage.setItem("trainmaster-theme", theme);
}

button.addEventListener("click", () => {
  const now = localStorage.getItem("trainmaster-theme") ?? "auto";
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
});
setTheme(localStorage.getItem("trainmaster-theme") ?? "auto");
addEventListener("hashchange", route);
route();
