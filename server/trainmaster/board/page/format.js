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

/** Seconds by their two largest units. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return minutes < 10 && whole % 60 ? `${minutes} min ${whole % 60} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
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
