// Numbers and times as people read them.

/** A metric's value: four digits; the names of what isn't finite stay. */
export function value(number) {
  if (number === null || number === undefined) return "–";
  if (typeof number === "string") return number;
  if (!Number.isFinite(number)) return String(number);
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size >= 1e15) return number.toExponential(2);
  if (size >= 1e5) return count(number);
  if (size >= 1000) return Number(number.toPrecision(Math.max(4, String(Math.trunc(size)).length))).toLocaleString("en-US");
  if (size < 1e-3) return Number(number.toPrecision(3)).toExponential();
  return String(Number(number.toPrecision(4)));
}

/** The same for columns of a table: trailing zeros stay. */
export function figure(number) {
  const words = value(number);
  return Number.isInteger(number) || !/^-?\d+\.\d+$/.test(words) ? words : number.toPrecision(4);
}

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** A count in thousands, millions, billions. */
export function count(number) {
  for (const [size, prefix] of PREFIXES) {
    if (Math.abs(number) >= size) return `${Number((number / size).toPrecision(3))}${prefix}`;
  }
  return String(Number(number.toPrecision(4)));
}

/** Numbers of one axis, all in one form: with the same prefix or exponent, and as many decimals. */
export function tickWords(ticks) {
  const sizes = ticks.map(Math.abs).filter(Boolean), most = Math.max(0, ...sizes), least = Math.min(...sizes);
  const steady = ticks.every((one, at) => at < 2 || Math.abs(one - 2 * ticks[at - 1] + ticks[at - 2]) < 1e-6 * most);
  if (!steady && (least < 1e-3 || most >= 1e5)) return ticks.map((one) => one.toExponential().replace("+", ""));
  if (!sizes.length || (most >= 1e-3 && most < 1e5)) return decimal(ticks, steady);
  if (most >= 1e15 || most < 1e-3) {
    const power = Math.floor(Math.log10(most));
    return decimal(ticks.map((one) => one / 10 ** power), true).map((one) => (Number(one) ? `${one}e${power}` : "0"));
  }
  const [size, prefix] = PREFIXES.find(([from]) => most >= from);
  return decimal(ticks.map((one) => one / size), true).map((one) => (Number(one) ? `${one}${prefix}` : "0"));
}

/** With as many decimals as the number that needs most, or each with its own. */
function decimal(numbers, alike) {
  const needed = (one) => [0, 1, 2, 3, 4, 5, 6].find((digits) => Math.abs(one - Number(one.toFixed(digits))) < 1e-9) ?? 6;
  const most = Math.max(0, ...numbers.map(needed));
  return numbers.map((one) => {
    const digits = alike ? most : needed(one);
    return one === 0 ? "0" : one.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  });
}

const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];

/** Seconds in at most two units, as the commands write them. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds > 0 && seconds < 0.95) return `${Number(seconds.toPrecision(2))} s`;
  const whole = Math.max(0, Math.round(seconds));
  for (const [size, unit, smaller, name] of UNITS) {
    if (whole < size) continue;
    const rest = Math.floor((whole % size) / smaller);
    return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${name}` : ""}`;
  }
  return `${whole} s`;
}

/** How long ago a Unix time was. */
export function ago(t) {
  return t === null || t === undefined ? "–" : `${duration(Date.now() / 1000 - t)} ago`;
}

/** When a Unix time was, by this machine's clock. */
export function moment(t) {
  const at = new Date(1000 * t), two = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(number) {
  const power = number < 1 ? 0 : Math.min(BYTES.length - 1, Math.floor(Math.log2(number) / 10));
  return `${Number((number / 1024 ** power).toPrecision(3))} ${BYTES[power]}`;
}

export function usd(number) {
  return number === null || number === undefined ? "–" : `$${number.toFixed(2)}`;
}

/** A value of a configuration. */
export function setting(found) {
  return typeof found === "string" ? found : JSON.stringify(found);
}
