// Numbers and times as people read them.

/** A metric's value: four digits; the names of what isn't finite stay. */
export function value(number) {
  if (number === null || number === undefined) return "–";
  if (typeof number === "string") return number;
  if (!Number.isFinite(number)) return String(number);
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size >= 1e15) return number.toExponential(2);
  if (size >= 10000) return count(number);
  if (size < 1e-3) return Number(number.toPrecision(3)).toExponential();
  return String(Number(number.toPrecision(4)));
}

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** A count in thousands, millions, billions. */
export function count(number) {
  for (const [size, prefix] of PREFIXES) {
    if (Math.abs(number) >= size) return `${Number((number / size).toPrecision(3))}${prefix}`;
  }
  return String(Number(number.toPrecision(4)));
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

export function usd(number) {
  return number === null || number === undefined ? "–" : `$${number.toFixed(2)}`;
}

/** A value of a configuration. */
export function setting(found) {
  return typeof found === "string" ? found : JSON.stringify(found);
}
