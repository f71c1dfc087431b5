// Asks the board for data with the token, as often as that is worth it.

const KEPT = "trainmaster-token";
const EVERY_MS = 2000;
const SLOWEST_MS = 15000;

let token = sessionStorage.getItem(KEPT) ?? "";

/** Keep the token of the address for this tab, and take it out of the address. */
export function takeToken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!found) return;
  token = found;
  sessionStorage.setItem(KEPT, found);
  history.replaceState(null, "", `${location.pathname}#/runs`);
}

/** An answer that is an error: `code`, `message`, `fix`, and the `status`. */
export class Refused extends Error {
  constructor(status, error) {
    super(error.message);
    Object.assign(this, { status, code: error.code, fix: error.fix });
  }
}

/**
 * Give each new answer of `path()` to `show` until the returned function is called; a page that
 * nobody sees asks nothing. `says(error)`: null after an answer. `again()` asks at once.
 */
export function poll(path, show, says, every = EVERY_MS) {
  let etag = null, asked = null, timer = null, over = false, asking = false, pause = every;
  const next = () => { if (!over && !document.hidden) timer = setTimeout(ask, pause); };
  async function ask() {
    clearTimeout(timer);
    if (over || asking) return;
    asking = true;
    const wanted = path();
    if (wanted !== asked) [etag, asked] = [null, wanted];
    try {
      const answer = await fetched(wanted, etag);
      pause = every;
      if (!over) says(null);
      if (answer && !over && wanted === path()) {
        etag = answer.etag;
        show(answer.body);
      }
    } catch (error) {
      pause = Math.min(2 * pause, SLOWEST_MS);
      if (!over) says(error);
    }
    asking = false;
    if (path() === wanted) next(); else ask();
  }
  const wake = () => { if (!document.hidden) ask(); };
  document.addEventListener("visibilitychange", wake);
  ask();
  const stop = () => {
    over = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", wake);
  };
  return { stop, again: ask };
}

/** The answer of a path; null where it has not changed. */
async function fetched(path, etag) {
  const headers = { Authorization: `Bearer ${token}` };
  if (etag) headers["If-None-Match"] = etag;
  const response = await fetch(path, { headers, cache: "no-store", credentials: "omit" });
  if (response.status === 304) return null;
  const body = await response.json();
  if (!response.ok) throw new Refused(response.status, body.error ?? { message: response.statusText });
  return { body, etag: response.headers.get("ETag") };
}
