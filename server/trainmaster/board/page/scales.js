// The arithmetic of charts: ranges, round numbers, averages.

/** The least and the largest finite number of several lists, with a margin on both sides. */
export function span(lists, margin) {
  let low = Infinity, high = -Infinity;
  for (const list of lists) {
    for (const one of list) {
      if (!Number.isFinite(one)) continue;
      if (one < low) low = one;
      if (one > high) high = one;
    }
  }
  if (low > high) return [0, 1];
  if (low === high) return [low - (Math.abs(low) * 0.05 || 0.5), high + (Math.abs(high) * 0.05 || 0.5)];
  return [low - margin * (high - low), high + margin * (high - low)];
}

const ROUND = [1, 2, 5], FEWEST = 3;

/** About `most` round numbers between two, three at least; `whole`: integers, of which there may be
 * fewer. */
export function linearTicks(low, high, most, whole = false) {
  const rough = (high - low) / Math.max(1, most), power = Math.floor(Math.log10(rough));
  const fits = ROUND.findIndex((one) => one * 10 ** power >= rough);
  let at = fits < 0 ? 3 * (power + 1) : 3 * power + fits; // among 1, 2, 5, 10, 20, 50, …
  const ticks = () => multiples(ROUND[((at % 3) + 3) % 3] * 10 ** Math.floor(at / 3), low, high);
  if (whole) at = Math.max(0, at);
  let found = ticks();
  while (found.length < FEWEST && !(whole && at <= 0)) {
    at -= 1;
    found = ticks();
  }
  return found;
}

function multiples(step, low, high) {
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at += 1) {
    found.push(Number((at * step).toPrecision(12)));
  }
  return found;
}

/** Powers of ten between two, with 2 and 5 between them where these are few. */
export function logTicks(low, high) {
  const decades = Math.log10(high / low), ticks = [];
  if (decades < 0.7) return linearTicks(low, high, 5).filter((one) => one > 0);
  const factors = decades > 4 ? [1] : decades > 2 ? [1, 3] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const factor of factors) {
      const one = factor * 10 ** power;
      if (one >= low && one <= high) ticks.push(Number(one.toPrecision(6)));
    }
  }
  return ticks;
}

/** The exponential moving average in which the past has `weight`, corrected as in Adam. */
export function smoothed(values, weight) {
  let mean = 0, share = 1;
  return values.map((one) => {
    if (!Number.isFinite(one)) return one;
    mean = weight * mean + (1 - weight) * one;
    share *= weight;
    return mean / (1 - share);
  });
}

/** The index of the element of a rising list that is nearest to a number. */
export function nearest(rising, wanted) {
  let low = 0, high = rising.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (rising[middle] < wanted) low = middle; else high = middle;
  }
  return wanted - rising[low] <= rising[high] - wanted ? low : high;
}

/** The place of a step on another axis, between those of its neighbours; null outside of them. */
export function placed(step, steps, places) {
  if (step === null || step === undefined || !steps.length) return null;
  const at = nearest(steps, step);
  const before = steps[at] <= step ? at : at - 1;
  if (before < 0) return places[0];
  if (before >= steps.length - 1) return places.at(-1);
  const share = (step - steps[before]) / (steps[before + 1] - steps[before] || 1);
  return places[before] + share * (places[before + 1] - places[before]);
}
