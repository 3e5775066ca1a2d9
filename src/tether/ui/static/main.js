// Which screen is shown, what stands in the bar at the top, and the keys.

import { text } from "./dom.js";
import { FailureScreen } from "./failures.js";
import { count, percent, seconds, span } from "./format.js";
import { Overview } from "./overview.js";
import { SlotScreen } from "./slot.js";
import { connect, known, newest, now, onChange } from "./store.js";
import { nextTheme, onTheme } from "./theme.js";

const SILENT_MS = 9000;
const PAUSE = 200;
const find = (id) => document.getElementById(id);
let screen = null, timer = null, route = null;

function open() {
  const [, kind, ...rest] = (location.hash || "#/").split("/").map(decodeURIComponent);
  const wanted = [kind, ...rest].join("/");
  if (screen && wanted === route) return;
  const moved = route !== null;
  route = wanted;
  if (screen) screen.end();
  if (kind === "slot") screen = new SlotScreen(rest.slice(0, -1).join("/"), rest[rest.length - 1]);
  else if (kind === "failure") screen = new FailureScreen(rest[0]);
  else screen = new Overview();
  find("screen").replaceChildren(screen.element);
  if (moved) { find("screen").focus({ preventScroll: true }); window.scrollTo(0, 0); }
  draw(true);
}

/** Kind and words of the state, the worst news first. */
function stateNow(last) {
  if (known.presence === "gone") return ["bad", "gone"];
  if (known.presence === "failed") return ["bad", "failed"];
  if (known.presence === "stopped") return ["over", "stopped"];
  if (!last) return ["over", "waiting"];
  if (last.state === "tentative") return ["tentative", `tentative, fidelity ${percent(last.fidelity)}`];
  if (last.state === "healing") {
    const left = last.seconds_left === null ? `${count(last.behind)} epochs behind` : `about ${span(last.seconds_left)} left`;
    return ["healing", `healing, ${left}`];
  }
  if (last.spent === null) return ["bad", "no bound"];
  return last.spent > 0 ? ["lost", "stable, within its bound"] : ["exact", "stable, nothing lost"];
}

function banner() {
  const silent = known.lastMessage && Date.now() - known.lastMessage > SILENT_MS;
  const last = newest();
  const asOf = last ? ` What you see is as of epoch ${count(last.epoch)}, ${span(now() - last.at)} ago.` : "";
  if (known.lastMessage && (silent || !known.connected)) return `Nobody answers: the driver is gone, or this browser is cut off. Trying again.${asOf}`;
  if (known.presence === "gone") return `The query is gone: it ended without a word, as after a crash.${asOf} Start it again from its checkpoint, and it goes on from its backups.`;
  if (known.presence === "failed") return `The query has failed: ${known.ended?.why || "see its log"}`;
  if (known.presence === "stopped") return `The query has stopped in good order.${asOf}`;
  if (known.presence === "quiet") return `Nothing was heard for ${span(now() - known.heardAt)}: the query is idle, or gone.`;
  return "";
}

function draw(force = false) {
  timer = null;
  if (document.hidden && !force) return;
  const last = newest(), [kind, words] = stateNow(last), chip = find("state");
  chip.dataset.kind = kind;
  text(chip, words);
  text(find("name"), known.query?.name || "Waiting for a query");
  document.title = known.query ? `${known.query.name} · Tether` : "Tether";
  const age = last ? now() - last.at : 0;
  text(find("clock"), last ? `epoch ${count(last.epoch)} · ${age < 1.5 ? "now" : `${span(age)} ago`}` : "");
  const said = banner();
  find("gone").hidden = !said;
  text(find("gone"), said);
  const facts = known.query;
  text(find("about"), facts ? `${facts.policy} · Tether ${facts.version}` : "");
  choices();
  screen.update(force);
}

function choices() {
  const select = find("queries"), several = known.queries.length > 1;
  if (select.hidden === several) select.hidden = !several;
  find("name").hidden = several;
  const seen = JSON.stringify(known.queries) + known.query?.id;
  if (!several || select.dataset.seen === seen) return;
  select.dataset.seen = seen;
  select.replaceChildren(...known.queries.map((one) => new Option(`${one.name}${one.presence === "running" ? "" : ` (${one.presence})`}`, one.id, false, one.id === known.query?.id)));
}

const soon = () => { timer ??= setTimeout(() => requestAnimationFrame(() => draw()), PAUSE); };
onChange((what) => { if (what === "whole") { if (timer) clearTimeout(timer); timer = null; draw(true); } else soon(); });
onTheme(() => screen?.theme());
setInterval(soon, 1000); // ages go on while nothing is heard
document.addEventListener("visibilitychange", () => { if (!document.hidden) draw(true); });
window.addEventListener("hashchange", open);
find("theme").addEventListener("click", nextTheme);
find("queries").addEventListener("change", (event) => { location.hash = "#/"; connect(event.target.value); });
document.querySelector(".keys").addEventListener("click", () => find("keys").showModal());

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "?") find("keys").showModal();
  else if (event.key === "t") nextTheme();
  else if (event.key === "o" || event.key === "Escape") location.hash = "#/";
  else if (event.key === "f" && known.failures.length) location.hash = `#/failure/${known.failures[known.failures.length - 1].number}`;
  else if (event.key === "s") {
    location.hash = "#/";
    setTimeout(() => { document.querySelector(".strip")?.focus(); document.getElementById("slots")?.scrollIntoView({ block: "nearest" }); }, 50);
  } else return;
  event.preventDefault();
});

open();
connect();
