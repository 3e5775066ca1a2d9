// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** An amount of error; null has no limit. */
export function amount(value) {
  if (value === null || value === undefined) return "∞";
  if (value === 0) return "0";
  if (Math.abs(value) < 100) return fine.format(value);
  if (Math.abs(value) < 1e7) return whole.format(Math.ceil(value));
  return short.format(value);
}

export function count(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 1e5 ? whole.format(value) : short.format(value);
}

export function rate(value) {
  if (value === null || !isFinite(value)) return "–";
  return value < 10 ? fine.format(value) : count(value);
}

export function bytes(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (value >= 999.5 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${value < 10 && at ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.0005) return "0 ms";
  if (value < 1) return `${fine.format(value * 1000)} ms`;
  if (value < 90) return `${value.toFixed(1)} s`;
  return span(value);
}

/** A length of time, roughly: for ages. */
export function span(value) {
  if (value < 1) return "now";
  if (value < 90) return `${Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  if (value < 129600) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86400)} d`;
}

export function percent(part) {
  if (!isFinite(part)) return "–";
  const value = part * 100;
  return `${value >= 99.95 && value < 100 ? "99.9" : value < 10 && value > 0 ? value.toFixed(1) : Math.round(value)} %`;
}

export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

export function day(at) {
  return new Date(at * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
