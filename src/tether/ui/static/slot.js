// The second screen: one slot.

import { Chart } from "./charts.js";
import { color, h, text } from "./dom.js";
import { amount, bytes, clock, count, percent, span } from "./format.js";
import { known, now, operatorName } from "./store.js";
import { share } from "./strip.js";

const ASK_PAUSE = 1000;
const SHOWN = 12;

export class SlotScreen {
  constructor(operator, slot) {
    this.operator = operator; this.slot = Number(slot); this.askedAt = 0; this.asking = false;
    this.facts = {};
    const fact = (name) => { this.facts[name] = h("dd", {}, "–"); return h("div", {}, h("dt", {}, name), this.facts[name]); };
    const place = h("div", { class: "chart" });
    place.style.height = "260px";
    this.chart = new Chart(place, () => [
      { stroke: color("--well"), fill: color("--well-soft"), width: 2 },
      { stroke: color("--risk"), dash: [6, 5], width: 2 },
    ], { label: "Divergence over time, beside θ", value: amount, names: ["divergence", "θ"] });
    this.body = h("tbody");
    this.missing = h("p", { class: "empty", hidden: "" }, "There is no such slot.");
    this.element = h("div", {}, h("a", { class: "back", href: "#/" }, "← Overview"),
      h("h2", { class: "screen-title" }, `${operator} / slot ${slot}`), this.missing,
      h("div", { class: "grid" },
        h("section", { class: "card" }, h("dl", { class: "facts" }, ["divergence", "θ", "used", "executor", "newest backup", "losses", "rows in the last epoch", "resident"].map(fact))),
        h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Divergence"), h("span", { class: "note" }, "what losing this slot would cost, epoch by epoch; dashed: θ")), place),
        h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "What happened")), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "time"), h("th", { class: "num" }, "epoch"), h("th", {}, "what"), h("th", {}, "why"), h("th", { class: "num hide-narrow" }, "bytes"))), this.body)))));
  }

  update(force) {
    const slots = known.slots;
    const at = slots ? slots.slot.findIndex((number, place) => number === this.slot && operatorName(slots.operator[place]) === this.operator) : -1;
    this.missing.hidden = !slots || at >= 0;
    if (at >= 0) this.fill(slots, at);
    if ((Date.now() - this.askedAt > ASK_PAUSE || force) && !this.asking) this.ask();
  }

  fill(slots, at) {
    const part = share(slots, at), facts = this.facts;
    text(facts.divergence, part === null ? "not told" : amount(slots.divergence[at]));
    text(facts["θ"], amount(slots.theta[at]));
    text(facts.used, part === null ? "–" : percent(part));
    text(facts.executor, slots.executors[slots.executor[at]]);
    const age = now() - slots.backup_at[at];
    text(facts["newest backup"], slots.backup_epoch[at] < 0 ? "none yet" : `epoch ${count(slots.backup_epoch[at])}, ${span(age)}${age < 1 ? "" : " ago"}`);
    text(facts.losses, String(slots.failures[at]));
    text(facts["rows in the last epoch"], count(slots.rows[at]));
    text(facts.resident, bytes(slots.resident_bytes[at]));
  }

  async ask() {
    this.asking = true; this.askedAt = Date.now();
    try {
      const wanted = new URLSearchParams({ operator: this.operator, slot: this.slot });
      if (known.query) wanted.set("query", known.query.id);
      const answer = await fetch(`api/slot?${wanted}`);
      if (answer.ok) this.draw(await answer.json());
    } catch { /* the banner says that nobody answers */ } finally { this.asking = false; }
  }

  draw(course) {
    this.chart.set([course.at, course.divergence, course.theta]);
    const newest = course.events.slice(-SHOWN).reverse();
    const seen = newest.map((one) => one.number).join();
    if (seen === this.seen) return;
    this.seen = seen;
    this.body.replaceChildren(...newest.map((one) => h("tr", {}, h("td", {}, clock(one.at)), h("td", { class: "num" }, count(one.epoch)), h("td", {}, one.what), h("td", { class: "name" }, one.cause), h("td", { class: "num hide-narrow" }, one.detail?.bytes ? bytes(one.detail.bytes) : ""))));
    if (!newest.length) this.body.append(h("tr", {}, h("td", { colspan: 5, class: "empty" }, "Nothing but plain work.")));
  }

  theme() { this.chart.redraw(); }
  end() { this.chart.end(); }
}
