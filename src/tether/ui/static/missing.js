// What is missing from the answer now, and how far its correction has come.

import { h, text, width } from "./dom.js";
import { count, percent, plural, span } from "./format.js";
import { now } from "./store.js";

export class Missing {
  constructor() {
    this.furthest = 0; this.since = null;
    this.what = h("p", { class: "words" }); this.how = h("p", { class: "words soft" });
    this.done = h("b");
    this.bar = h("div", { class: "meter", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": "How far the correction has come" }, h("i", {}, this.done));
    this.element = h("div", { class: "missing", hidden: "" }, this.what, this.bar, this.how);
  }

  update(last) {
    const none = last.state === "stable";
    if (this.element.hidden !== none) this.element.hidden = none;
    if (none) { this.furthest = 0; return; }
    const healing = last.state === "healing";
    // Another loss: the way begins anew.
    if (this.since !== last.missing_since) { this.since = last.missing_since; this.furthest = 0; }
    this.furthest = Math.max(this.furthest, last.behind);
    const began = last.missing_from >= 0 ? ` since epoch ${count(last.missing_from)}` : "";
    const ago = last.missing_since === null ? "" : `, ${span(now() - last.missing_since)} ago`;
    const share = last.fidelity < 1 ? ` Answers are made from ${percent(last.fidelity)} of what there should be.` : "";
    text(this.what, `Something is missing from the answer${began}${ago}.${share}`);
    const left = last.seconds_left === null ? "" : `, about ${span(last.seconds_left)} left`;
    const rows = last.tentative_rows ? `${plural(last.tentative_rows, "tentative row")} to be corrected${last.oldest_tentative === null ? "" : `, the oldest given ${span(now() - last.oldest_tentative)} ago`}.` : "";
    text(this.how, [healing ? `A twin reads again what was lost: ${plural(last.behind, "epoch")} to go${left}.` : "", rows].filter(Boolean).join(" "));
    this.bar.hidden = !healing;
    const part = this.furthest ? 1 - last.behind / this.furthest : 0;
    width(this.done, part);
    const value = String(Math.round(part * 100));
    if (this.bar.getAttribute("aria-valuenow") !== value) this.bar.setAttribute("aria-valuenow", value);
  }
}
