// What the page knows: everything when it connects, then what is new, over server-sent events.

const MOST_EPOCHS = 1600;
const DEFAULTS = {
  epochs: 1, seconds: 0, rows_in: 0, rows_out: 0, promised: null, spent: 0, at_risk: 0, worst: 0, left: 0,
  backups: {}, backup_bytes: {}, changed: 0, entry_bytes: 0, resident_bytes: 0, fullness: 0, losses: 0,
  state: "stable", fidelity: 1, behind: 0, seconds_left: null,
  missing_since: null, missing_from: -1, tentative_rows: 0, oldest_tentative: null,
};

export const known = {
  query: null, queries: [], runs: [], actions: [], epochs: [], slots: null, failures: [], events: [],
  standing: null, total: { ...DEFAULTS }, presence: "waiting", ended: null, heardAt: 0,
  skew: 0, lastMessage: 0, connected: false, version: 0,
};

const listeners = [];
export const onChange = (listener) => listeners.push(listener);
const changed = (what) => { known.version += 1; listeners.forEach((listener) => listener(what)); };

/** Seconds since the epoch by the server's clock. */
export const now = () => Date.now() / 1000 + known.skew;
export const newest = () => known.epochs[known.epochs.length - 1] || null;
export const operatorName = (place) => known.query?.operators[place]?.name ?? `operator ${place}`;

function joined(one, two) {
  const sum = (a, b) => {
    const both = { ...a };
    for (const [name, value] of Object.entries(b)) both[name] = (both[name] || 0) + value;
    return both;
  };
  const most = (a, b) => (a === null || b === null ? null : Math.max(a, b));
  return {
    ...two, epochs: one.epochs + two.epochs, seconds: one.seconds + two.seconds,
    rows_in: one.rows_in + two.rows_in, rows_out: one.rows_out + two.rows_out,
    spent: most(one.spent, two.spent), at_risk: most(one.at_risk, two.at_risk),
    worst: most(one.worst, two.worst), backups: sum(one.backups, two.backups),
    backup_bytes: sum(one.backup_bytes, two.backup_bytes), changed: one.changed + two.changed,
    fullness: Math.max(one.fullness, two.fullness), losses: one.losses + two.losses,
  };
}

function thin(epochs) {
  if (epochs.length <= MOST_EPOCHS) return epochs;
  const older = epochs.slice(0, MOST_EPOCHS / 2), rest = epochs.slice(MOST_EPOCHS / 2);
  const halved = [];
  for (let at = 0; at < older.length; at += 2) {
    halved.push(at + 1 < older.length ? joined(older[at], older[at + 1]) : older[at]);
  }
  return halved.concat(rest);
}

function take(message) {
  known.skew = message.now - Date.now() / 1000;
  known.presence = message.presence;
  if (message.heard_at !== undefined) known.heardAt = message.heard_at;
  if (message.total) known.total = { ...DEFAULTS, ...message.total };
  if (message.epochs) {
    for (const figures of message.epochs) known.epochs.push({ ...DEFAULTS, ...figures });
    known.epochs = thin(known.epochs);
  }
  if (message.events) {
    known.events.push(...message.events.map(([number, event]) => ({ ...event, order: number })));
    known.events = known.events.slice(-300);
  }
  for (const failure of message.failures || []) {
    const at = known.failures.findIndex((other) => other.number === failure.number);
    if (at >= 0) known.failures[at] = failure; else known.failures.push(failure);
  }
  if (message.slots) known.slots = message.slots;
  if (message.standing) known.standing = message.standing;
  if (message.ended !== undefined) known.ended = message.ended;
}

let source = null;

/** Connect; the browser itself tries again when the connection breaks, every second. */
export function connect(query) {
  if (source) source.close();
  source = new EventSource(`api/stream${query ? `?query=${encodeURIComponent(query)}` : ""}`);
  const heard = () => { known.lastMessage = Date.now(); known.connected = true; };
  source.addEventListener("whole", (event) => {
    heard();
    Object.assign(known, { epochs: [], events: [], failures: [], slots: null, standing: null, ended: null });
    const message = JSON.parse(event.data);
    Object.assign(known, {
      query: message.query, runs: message.runs, actions: message.actions, queries: message.queries,
    });
    take(message);
    changed("whole");
  });
  source.addEventListener("news", (event) => { heard(); take(JSON.parse(event.data)); changed("news"); });
  source.addEventListener("beat", (event) => { heard(); take(JSON.parse(event.data)); changed("beat"); });
  source.onopen = () => { known.connected = true; known.lastMessage = Date.now(); };
  source.onerror = () => { known.connected = false; changed("beat"); };
}

/** Sums of the last seconds: for figures that say how it goes now. */
export function lately(span = 10) {
  const last = newest();
  if (!last) return null;
  let at = known.epochs.length, sum = null;
  while (at > 0 && (last.at - known.epochs[at - 1].at < span || !sum)) {
    at -= 1;
    sum = sum ? joined(known.epochs[at], sum) : { ...known.epochs[at] };
  }
  const before = at > 0 ? known.epochs[at - 1].at : sum.at - Math.max(sum.seconds, 0.001);
  return { ...sum, span: Math.max(0.001, last.at - before) };
}
