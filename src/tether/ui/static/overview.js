// The first screen: the bound, the slots, backups and rows over time, failures.

import { buttons } from "./actions.js";
import { Chart, bars, binned, steps } from "./charts.js";
import { color, h, text, width } from "./dom.js";
import { FailureList } from "./failures.js";
import { amount, bytes, count, percent, plural, rate, seconds, span } from "./format.js";
import { Missing } from "./missing.js";
import { known, lately, newest, now, operatorName } from "./store.js";
import { StoryList } from "./story.js";
import { Strip, share, slotHref } from "./strip.js";

const WORST = 8;
const CHART_PAUSE = 1000;
const CAUSES = {
  theta: "passed θ", "every-epoch": "every epoch", "every-items": "every so many rows", snapshot: "snapshot",
  compaction: "compaction", flush: "at the end", items: "logged rows",
};

export class Overview {
  constructor() {
    this.drawnAt = 0; this.version = -1;
    this.strip = new Strip((at) => { location.hash = slotHref(known.slots, at); });
    this.failures = new FailureList();
    this.story = new StoryList(); this.missing = new Missing();
    this.element = h("div", {}, this.hero(), this.tiles(), h("div", { class: "grid" },
      this.slots(), this.boundChart(), this.backupsChart(), this.bytesChart(), this.rowsChart(),
      this.failures.element, this.copies(), this.gateways(), this.story.element, this.asking()));
  }

  hero() {
    this.spent = h("strong", { id: "spent" }, "–");
    this.promised = h("span", {});
    this.partSpent = h("i", { class: "spent" });
    this.partRisk = h("i", { class: "risk" });
    this.rope = h("div", { class: "rope", role: "img" }, this.partSpent, this.partRisk);
    this.words = { spent: h("b"), risk: h("b"), left: h("b") };
    return h("section", { class: "hero", "aria-label": "The bound" },
      h("p", { class: "label" }, "The answer is wrong by at most"),
      h("p", { class: "figure" }, this.spent, this.promised), this.rope,
      h("ul", { class: "legend" },
        h("li", {}, h("i", { class: "swatch spent" }), this.words.spent, " lost so far, at most"),
        h("li", {}, h("i", { class: "swatch risk" }), this.words.risk, " more if every slot died now"),
        h("li", {}, h("i", { class: "swatch" }), this.words.left, " of the budget left")), this.missing.element);
  }

  tiles() {
    this.tile = {};
    const one = (name, what) => {
      const value = h("p", { class: "value" }, "–"), more = h("p", { class: "more" }, "\u00a0");
      this.tile[name] = { value, more };
      return h("div", { class: "tile" }, h("p", { class: "what" }, what), value, more);
    };
    return h("section", { class: "tiles", "aria-label": "Figures" }, one("in", "rows in"), one("out", "rows out"),
      one("epoch", "an epoch takes"), one("written", "not written"), one("failures", "failures survived"));
  }

  slots() {
    this.slotsNote = h("span", { class: "note" });
    this.rows = h("tbody");
    return h("section", { class: "card", id: "slots" },
      h("div", { class: "head" }, h("h2", {}, "Slots"), h("span", { class: "note" }, "divergence against θ, worst first"), this.slotsNote),
      this.strip.element, this.strip.scale,
      h("div", { class: "scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, "slot"), h("th", {}, "divergence of θ"),
          h("th", { class: "hide-narrow" }, "executor"), h("th", { class: "num" }, "backup"),
          h("th", { class: "num hide-narrow" }, "losses"))), this.rows)));
  }

  panel(title, note, chart, ...keys) {
    const head = h("div", { class: "head" }, h("h2", {}, title), note);
    return h("section", { class: "card half" }, head, chart, h("ul", { class: "keylist" }, ...keys));
  }

  key(name, cssColor, words, kind = "line") {
    const mark = h("i", { class: kind });
    mark.style.background = `var(${cssColor})`;
    mark.style.color = `var(${cssColor})`;
    return h("li", { "data-key": name }, mark, words);
  }

  boundChart() {
    const place = h("div", { class: "chart" });
    this.bound = new Chart(place, () => [
      { stroke: color("--risk"), fill: color("--risk-soft"), width: 1.5 },
      { stroke: color("--lost"), width: 2.5, paths: steps() },
      { stroke: color("--soft"), dash: [6, 5], width: 1.5 },
    ], { label: "The bound over time: lost so far, and if every slot died", value: amount, names: ["if every slot died", "lost so far", "budget"] });
    this.boundNote = h("span", { class: "note" });
    return this.panel("The bound over time", this.boundNote, place,
      this.key("worst", "--risk", "if every slot died"), this.key("spent", "--lost", "lost so far"),
      this.key("promised", "--soft", "budget", "dash"));
  }

  backupsChart() {
    this.causes = Object.keys(CAUSES);
    const place = h("div", { class: "chart" });
    this.backups = new Chart(place, () => this.shownCauses().map((cause) => (
      { fill: color(`--cause-${cause}`), stroke: color("--card"), width: 1, paths: bars() })), { label: "Backups over time, by cause", value: count, whole: true });
    this.backupsNote = h("span", { class: "note" });
    this.causeKeys = h("ul", { class: "keylist" });
    return h("section", { class: "card half" },
      h("div", { class: "head" }, h("h2", {}, "Backups by cause"), this.backupsNote), place, this.causeKeys);
  }

  bytesChart() {
    const place = h("div", { class: "chart" });
    this.written = new Chart(place, () => [
      { stroke: color("--soft"), dash: [6, 5], width: 1.5 },
      { stroke: color("--well"), fill: color("--well-soft"), width: 2 },
    ], { label: "Bytes made durable over time, beside every change in its epoch", value: bytes, names: ["every change", "written"] });
    this.bytesNote = h("span", { class: "note" });
    return this.panel("Bytes made durable", this.bytesNote, place, this.key("exact", "--soft", "every change in its epoch, about", "dash"),
      this.key("written", "--well", "written"));
  }

  rowsChart() {
    const place = h("div", { class: "chart" });
    this.rowRates = new Chart(place, () => [
      { stroke: color("--well"), width: 2 }, { stroke: color("--cause-every-items"), width: 2, dash: [3, 3] },
    ], { label: "Rows a second over time, in and out", value: count, names: ["in", "out"] });
    return this.panel("Rows a second", h("span", { class: "note" }), place, this.key("in", "--well", "in"),
      this.key("out", "--cause-every-items", "out", "dash"));
  }

  copies() {
    this.copiesBody = h("tbody");
    this.copiesCard = h("section", { class: "card half", hidden: "" }, h("div", { class: "head" }, h("h2", {}, "Copies")),
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "slot"), h("th", {}, "executor"), h("th", { class: "num" }, "lag"))), this.copiesBody)));
    return this.copiesCard;
  }

  gateways() {
    this.gatewaysBody = h("tbody");
    this.gatewaysCard = h("section", { class: "card half gateways", hidden: "" }, h("div", { class: "head" }, h("h2", {}, "Gateway windows")),
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "gateway"), h("th", {}, "in memory only, of l"), h("th", {}, "gone with producers, of Γ"))), this.gatewaysBody)));
    return this.gatewaysCard;
  }

  asking() {
    this.buttons = buttons();
    this.buttonsCard = h("section", { class: "card bare", "aria-label": "Actions" }, this.buttons);
    return this.buttonsCard;
  }

  // ---- updates --------------------------------------------------------------------------------

  update(force) {
    const last = newest();
    if (!last) { text(this.spent, "–"); text(this.promised, "no epoch has ended yet"); return; }
    this.updateBound(last);
    this.missing.update(last);
    this.updateTiles(last);
    this.updateSlots();
    this.updateStanding();
    const due = Date.now() - this.drawnAt > CHART_PAUSE || force;
    if (due && (this.version !== known.version || force)) {
      this.drawnAt = Date.now(); this.version = known.version;
      this.updateCharts();
      this.failures.update();
      this.story.update();
    }
    const none = !known.actions.length;
    if (this.buttonsCard.hidden !== none) this.buttonsCard.hidden = none;
    this.buttons.show(known.actions);
  }

  updateBound(last) {
    text(this.spent, amount(last.spent));
    text(this.promised, last.promised === null ? "nothing is promised" : last.promised === 0 ? "exact: no error is allowed" : `of ${amount(last.promised)}`);
    const whole = last.promised ?? (last.worst || 1);
    const added = last.worst === null || last.spent === null ? null : Math.max(0, last.worst - last.spent);
    width(this.partSpent, last.spent === null ? 1 : whole ? last.spent / whole : 0);
    width(this.partRisk, added === null ? 1 : whole ? added / whole : 0);
    text(this.words.spent, amount(last.spent));
    text(this.words.risk, amount(added));
    text(this.words.left, amount(last.promised === null ? null : last.left));
    const label = `${amount(last.spent)} lost, ${amount(added)} at risk, of ${amount(last.promised)}`;
    if (this.rope.getAttribute("aria-label") !== label) this.rope.setAttribute("aria-label", label);
  }

  updateTiles(last) {
    const recent = lately(), { total, tile } = { total: known.total, tile: this.tile };
    const set = (where, value, unit, more) => {
      const shown = `${value} ${unit}`.trim();
      if (where.shown !== shown) { where.shown = shown; where.value.replaceChildren(value, unit ? h("small", {}, ` ${unit}`) : ""); }
      text(where.more, more);
    };
    const over = known.presence !== "running";
    set(tile.in, over ? count(total.rows_in) : rate(recent.rows_in / recent.span), over ? "" : "a second", over ? "in all" : `${count(total.rows_in)} in all`);
    set(tile.out, over ? count(total.rows_out) : rate(recent.rows_out / recent.span), over ? "" : "a second", over ? "in all" : `${count(total.rows_out)} in all`);
    set(tile.epoch, seconds(recent.seconds / recent.epochs), "", `${plural(total.epochs, "epoch")}, ${bytes(last.resident_bytes)} resident`);
    const wrote = Object.values(total.backup_bytes).reduce((a, b) => a + b, 0);
    const exact = total.changed * total.entry_bytes;
    if (exact > wrote && exact) set(tile.written, percent(1 - wrote / exact), "", `${bytes(wrote)} instead of ${bytes(exact)}`);
    else set(tile.written, "–", "", `${bytes(wrote)} written`);
    const lost = known.failures.reduce((a, one) => (a === null || one.lost === null ? null : a + one.lost), 0);
    const survived = known.failures.length ? known.failures[known.failures.length - 1].number : 0; // old ones are forgotten, not uncounted
    set(tile.failures, count(survived), "", survived ? `lost ${amount(lost)} at most` : "none so far");
  }

  updateSlots() {
    const slots = known.slots;
    if (!slots) return;
    if (this.slotsSeen !== slots) this.strip.update();
    const executors = new Set(slots.executor).size;
    text(this.slotsNote, `${plural(slots.slot.length, "slot")} on ${plural(executors, "executor")}`);
    const worst = this.strip.sorted.order.slice(0, WORST);
    while (this.rows.children.length > worst.length) this.rows.lastChild.remove();
    while (this.rows.children.length < worst.length) this.rows.append(this.row());
    worst.forEach((at, place) => this.fill(this.rows.children[place], slots, at));
    this.slotsSeen = slots;
  }

  row() {
    return h("tr", {}, h("td", { class: "name" }, h("a", {})),
      h("td", { class: "wide" }, h("div", { class: "meter" }, h("i", {}, h("b")), h("span"))),
      h("td", { class: "name hide-narrow" }), h("td", { class: "num" }), h("td", { class: "num hide-narrow" }));
  }

  fill(row, slots, at) {
    const [name, wide, executor, age, losses] = row.children;
    const link = name.firstChild, part = share(slots, at), meter = wide.firstChild;
    const several = known.query.operators.length > 1;
    text(link, several ? `${operatorName(slots.operator[at])} / ${slots.slot[at]}` : `slot ${slots.slot[at]}`);
    const href = slotHref(slots, at);
    if (link.getAttribute("href") !== href) link.setAttribute("href", href);
    width(meter.firstChild.firstChild, part ?? 0);
    meter.classList.toggle("high", (part ?? 0) >= 0.8);
    text(meter.lastChild, part === null ? "read again if lost" : `${amount(slots.divergence[at])} of ${amount(slots.theta[at])}`);
    text(executor, slots.executors[slots.executor[at]]);
    text(age, slots.backup_epoch[at] < 0 ? "none yet" : `${span(now() - slots.backup_at[at])}${now() - slots.backup_at[at] < 1 ? "" : " ago"}`);
    text(losses, String(slots.failures[at]));
  }

  updateStanding() {
    const { copies = [], gateways = [] } = known.standing || {};
    this.copiesCard.hidden = !copies.length;
    this.gatewaysCard.hidden = !gateways.length;
    if (this.standingSeen === known.standing) return;
    this.standingSeen = known.standing;
    const sorted = [...copies].sort((a, b) => b.lag - a.lag);
    this.copiesBody.replaceChildren(...sorted.slice(0, WORST).map((one) => h("tr", {},
      h("td", {}, `${one.operator} / ${one.slot}`, one.speaks ? h("span", { class: "tag" }, "speaks") : ""), h("td", { class: "name" }, one.executor), h("td", { class: "num" }, plural(one.lag, "epoch")))));
    const meter = (part, whole) => {
      const bar = h("b");
      width(bar, whole ? part / whole : 0);
      const words = whole === null ? `${part === null ? "any number" : count(part)}, no limit` : `${count(part)} of ${count(whole)}`;
      return h("div", { class: `meter${whole && part / whole >= 0.8 ? " high" : ""}` }, h("i", {}, bar), h("span", {}, words));
    };
    this.gatewaysBody.replaceChildren(...gateways.map((one) => h("tr", {}, h("td", {}, one.name),
      h("td", {}, meter(one.pending, one.max_pending)), h("td", {}, meter(one.unacked, one.max_unacked)))));
  }

  shownCauses() { return this.shown || []; }

  updateCharts() {
    const all = known.epochs;
    const dots = all.length > 700 ? binned(all, 350, (some, at) => some[some.length - 1] && { ...some[some.length - 1], at, worst: Math.max(...some.map((one) => one.worst ?? 0)) }).filter(Boolean) : all;
    const near = dots.some((one) => one.promised !== null && one.promised < 12 * Math.max(...dots.map((other) => other.worst ?? 0), 1e-9));
    this.bound.set([dots.map((one) => one.at), dots.map((one) => one.worst), dots.map((one) => one.spent), dots.map((one) => (near ? one.promised : null))]);
    text(this.boundNote, near ? "" : "the budget is far above");

    // Several epochs in a bin: one more or less in it must not look like a change of pace.
    const rows = binned(all, Math.max(8, Math.min(90, all.length / 6)), (some, at, size) => ({ at, in: some.reduce((a, one) => a + one.rows_in, 0) / size, out: some.reduce((a, one) => a + one.rows_out, 0) / size }));
    if (rows.length > 3) { rows.pop(); rows.shift(); } // a bin in part says nothing about a second
    this.rowRates.set([rows.map((one) => one.at), rows.map((one) => one.in), rows.map((one) => one.out)]);

    const perEntry = known.total.entry_bytes;
    let exact = known.total.changed * perEntry - all.reduce((a, one) => a + one.changed, 0) * perEntry;
    let wrote = Object.values(known.total.backup_bytes).reduce((a, b) => a + b, 0) - all.reduce((a, one) => a + Object.values(one.backup_bytes).reduce((x, y) => x + y, 0), 0);
    const course = all.map((one) => {
      exact += one.changed * perEntry;
      wrote += Object.values(one.backup_bytes).reduce((a, b) => a + b, 0);
      return [one.at, exact, wrote];
    });
    this.written.set([course.map((one) => one[0]), course.map((one) => (perEntry ? one[1] : null)), course.map((one) => one[2])]);
    text(this.bytesNote, perEntry ? "" : "no backup yet to compare with");
    this.updateBackups(all);
  }

  updateBackups(all) {
    const counts = known.total.backups;
    const shown = [...this.causes, ...Object.keys(counts).filter((cause) => !this.causes.includes(cause))].filter((cause) => counts[cause]);
    const bins = binned(all, 48, (some, at) => {
      const sums = {};
      for (const one of some) for (const [cause, number] of Object.entries(one.backups)) sums[cause] = (sums[cause] || 0) + number;
      return { at, sums };
    });
    // Stacked: the topmost series is drawn first, each of them as high as all below it together.
    const stacked = [...shown].reverse();
    const upTo = (bin, cause) => shown.slice(0, shown.indexOf(cause) + 1).reduce((a, one) => a + (bin.sums[one] || 0), 0);
    const rebuild = stacked.join() !== (this.shown || []).join();
    this.shown = stacked;
    if (rebuild && this.backups.plot) { this.backups.plot.destroy(); this.backups.plot = null; }
    this.backups.set([bins.map((one) => one.at), ...stacked.map((cause) => bins.map((bin) => upTo(bin, cause)))]);
    const made = Object.values(counts).reduce((a, b) => a + b, 0);
    text(this.backupsNote, made ? plural(made, "backup") : "none yet");
    if (rebuild || this.keysFor !== shown.join()) {
      this.keysFor = shown.join();
      this.causeKeys.replaceChildren(...shown.map((cause) => {
        const key = this.key(cause, `--cause-${cause}`, CAUSES[cause] || cause, "");
        key.append(" ", h("b"));
        return key;
      }));
    }
    for (const key of this.causeKeys.children) text(key.querySelector("b"), count(counts[key.dataset.key] || 0));
  }

  theme() {
    [this.bound, this.backups, this.written, this.rowRates].forEach((chart) => chart.redraw());
    this.strip.draw();
    this.failures.draw();
  }

  end() { [this.bound, this.backups, this.written, this.rowRates].forEach((chart) => chart.end()); }
}
