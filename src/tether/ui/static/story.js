// What happened to the query as a whole, newest first; failures and backups have their own places.

import { h } from "./dom.js";
import { clock, count } from "./format.js";
import { known } from "./store.js";

const LISTED = 8;
const ELSEWHERE = new Set(["backup", "placed", "snapshot", "recovery", "rollback"]);
const WORDS = {
  started: "started", stopped: "stopped", "given-up": "snapshot given up", rewound: "went back to a snapshot",
  tentative: "answers are tentative", corrected: "tentative answers corrected", "ahead-lost": "epochs ahead lost",
  healing: "began to heal", twin: "a twin began", "twin-lost": "the twin was lost", "no-twin": "no twin",
  "taken-over": "the twin took over", replanned: "plan made anew", resent: "epoch sent again", respread: "slots spread again",
  rescaled: "number of slots changed", copied: "copies made", "copies-lost": "copies lost", promoted: "a copy took its slot's place",
  "replanned-copies": "copies planned anew", "copy-moved": "a copy moved", "feedback-lost": "feedback lost",
  "items-lost": "items lost", unflushed: "not backed up at the end", damage: "damaged backup",
};

export class StoryList {
  constructor() {
    this.body = h("tbody");
    this.element = h("section", { class: "card", id: "story", hidden: "" },
      h("div", { class: "head" }, h("h2", {}, "What happened"), h("span", { class: "note" }, "to the query as a whole, newest first")),
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "time"), h("th", { class: "num hide-narrow" }, "epoch"),
        h("th", {}, "what"), h("th", { class: "hide-narrow" }, "why"))), this.body)));
  }

  update() {
    const shown = known.events.filter((one) => !ELSEWHERE.has(one.what)).slice(-LISTED).reverse();
    const seen = shown.map((one) => one.order).join();
    if (seen === this.seen) return;
    this.seen = seen;
    this.element.hidden = !shown.length;
    this.body.replaceChildren(...shown.map((one) => h("tr", {}, h("td", {}, clock(one.at)),
      h("td", { class: "num hide-narrow" }, one.epoch < 0 ? "–" : count(one.epoch)), h("td", {}, WORDS[one.what] || one.what, one.slot >= 0 ? ` (slot ${one.slot})` : ""),
      h("td", { class: "why hide-narrow" }, one.cause))));
  }
}
