// Elements from words: whatever comes from a host becomes a text node, never markup.

/** An element. `props`: attributes; `class`; `on`: listeners by event. Children: elements, or text. */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

const SVG = "http://www.w3.org/2000/svg";

/** The same of SVG. */
export function svg(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("aria-")) {
      element.setAttribute(name, String(value));
    } else if (value === false) {
      continue;
    } else if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(4)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

const FOCUSED = "a, button, input, select, [tabindex]";

/**
 * Replace what is in an element, only where `shown` differs from what it was drawn from. What has
 * the focus keeps it, and a log stays where its reader has scrolled it, or at its end.
 */
export function draw(element, shown, children) {
  const text = JSON.stringify(shown);
  if (element.drawnFrom === text) return;
  element.drawnFrom = text;
  const focused = [...element.querySelectorAll(FOCUSED)].indexOf(document.activeElement);
  const log = element.querySelector(".log");
  const above = log && log.scrollTop + log.clientHeight < log.scrollHeight - 8 ? log.scrollTop : null;
  element.replaceChildren();
  append(element, [children()]);
  if (focused >= 0) element.querySelectorAll(FOCUSED)[focused]?.focus({ preventScroll: true });
  const now = element.querySelector(".log");
  if (now) now.scrollTop = above ?? now.scrollHeight;
}

/** Give an element a child for each of `items`, in their order; those of known keys are kept. */
export function drawEach(element, items, key, make, shown, children) {
  const known = new Map([...element.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, at) => {
    const child = known.get(key(item)) ?? make(item);
    child.dataset.key = key(item);
    known.delete(key(item));
    if (element.children[at] !== child) element.insertBefore(child, element.children[at] ?? null);
    draw(child, shown(item), () => children(item));
  });
  for (const child of known.values()) child.remove();
}

/** A command that can be copied. */
export function command(text) {
  const said = h("span", { class: "visually-hidden", role: "status" });
  const button = h("button", {
    type: "button", class: "quiet small", "aria-label": `Copy ${text}`,
    on: {
      click: async () => {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
        said.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; said.textContent = ""; }, 1500);
      },
    },
  }, "Copy");
  return h("span", { class: "command" }, h("code", {}, text), button, said);
}

/** Text in which commands stand between backticks. */
export function advice(text) {
  return text.split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));
}

/** What to do next: a command as a whole, or a sentence with commands in it. */
export function nextStep(text) {
  const isCommand = /^\S*trainmaster\s/.test(text) && !text.includes("`");
  return h("p", { class: "next" }, "Next: ", isCommand ? command(text) : advice(text));
}

const SIGNS = {
  running: "●", completed: "✓", failed: "✕", stopped: "■", lost: "?", recovering: "↻",
  stopping: "◐", preparing: "◌", queued: "◌", planned: "◌",
};

/** A state by colour, sign and word. */
export function stateChip(state) {
  return h("span", { class: "chip state", "data-state": state },
    h("span", { "aria-hidden": "true" }, SIGNS[state] ?? "·"), " ", state);
}

const OPEN = new Set(["planned", "preparing", "queued", "running", "recovering", "stopping", "lost"]);

/** Whether a run in this state may go on. */
export function isOpen(state) {
  return OPEN.has(state);
}

/** Step of a target, as a bar and in words; of what has ended without a step, neither. */
export function progress(step, target, state) {
  if (!step && !isOpen(state)) return h("span", { class: "number none" }, "–");
  const share = target ? Math.min(1, step / target) : null;
  const words = target ? `${group(step)} / ${group(target)}` : group(step);
  if (share === null) return h("span", { class: "progress" }, h("span", { class: "number" }, words));
  const bar = h("span", {
    class: "bar", role: "progressbar", "aria-label": "steps", "aria-valuemin": 0,
    "aria-valuemax": target, "aria-valuenow": step,
  }, h("span", {}));
  bar.firstChild.style.width = `${100 * share}%`;
  return h("span", { class: "progress" }, bar, h("span", { class: "number" }, words));
}

function group(number) {
  return number.toLocaleString("en-US");
}
