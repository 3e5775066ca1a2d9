// Failures: all on a line of time, the newest in words, and one of them on a screen of its own.

import { canvas, color, h, text, width } from "./dom.js";
import { amount, bytes, clock, count, day, plural, seconds } from "./format.js";
import { known } from "./store.js";

const LISTED = 6;
const WORDS = {
  find: "found the backup", read: "read it", apply: "applied it", replay: "replayed rows", finish: "went on",
};

/** The phases of a recovery as parts of one bar. */
export function phaseBar(failure, tall = false) {
  const parts = Object.entries(failure.seconds).filter(([, value]) => value > 0);
  const whole = parts.reduce((sum, [, value]) => sum + value, 0);
  const bar = h("div", { class: tall ? "phases tall" : "phases", role: "img",
    "aria-label": parts.map(([name, value]) => `${WORDS[name] || name} ${seconds(value)}`).join(", ") || "no phases told" });
  for (const [name, value] of parts) {
    const part = h("i", { title: `${WORDS[name] || name}: ${seconds(value)}` });
    width(part, value / whole);
    bar.append(part);
  }
  return bar;
}

const lostWords = (failure) => (failure.lost === 0 ? "nothing lost" : `lost ${amount(failure.lost)} at most`);

function what(failure) {
  if (failure.slots.length) return plural(failure.slots.length, "slot");
  return failure.notes[0]?.split(":")[0] || "";
}

export class FailureList {
  constructor() {
    this.note = h("span", { class: "note" });
    this.line = h("canvas", { class: "line", role: "img", "aria-label": "Failures over time" });
    this.list = h("ol", { class: "failures" });
    this.seen = "";
    this.element = h("section", { class: "card", id: "failures" },
      h("div", { class: "head" }, h("h2", {}, "Failures"), this.note), this.line, this.list);
    new ResizeObserver(() => this.draw()).observe(this.line);
  }

  update() {
    const failures = known.failures;
    text(this.note, failures.length ? "what each cost, beside what it could have" : "");
    const seen = JSON.stringify(failures.slice(-LISTED).map((one) => [one.number, one.slots.length, one.pause]));
    if (seen !== this.seen) {
      this.seen = seen;
      const newest = failures.slice(-LISTED).reverse();
      this.list.replaceChildren(...newest.map((one) => this.item(one)));
      if (!newest.length) this.list.append(h("li", { class: "empty" }, "None so far. When a process dies, it shows here: which slots, how long each step took, what was lost and what could have been."));
    }
    this.draw();
  }

  item(failure) {
    return h("li", {}, h("a", { href: `#/failure/${failure.number}` },
      h("span", { class: "no" }, `#${failure.number}`),
      h("span", {}, `${clock(failure.at)} `, h("span", { class: "soft" }, `epoch ${count(failure.epoch)}, ${what(failure)}`)),
      phaseBar(failure),
      h("span", { class: "loss" }, lostWords(failure), failure.allowed ? h("span", { class: "soft" }, ` of ${amount(failure.allowed)}`) : "")));
  }

  draw() {
    const made = canvas(this.line);
    if (!made || !known.epochs.length) return;
    const { brush, width: wide, height } = made, middle = height / 2 - 4;
    const first = known.epochs[0].at, last = Math.max(known.epochs[known.epochs.length - 1].at, first + 1);
    const x = (at) => 8 + ((at - first) / (last - first)) * (wide - 16);
    brush.strokeStyle = color("--line"); brush.lineWidth = 2;
    brush.beginPath(); brush.moveTo(0, middle); brush.lineTo(wide, middle); brush.stroke();
    brush.fillStyle = color("--faint"); brush.font = "12px system-ui, sans-serif";
    brush.fillText(clock(first), 0, height - 2);
    const end = clock(last);
    brush.fillText(end, wide - brush.measureText(end).width, height - 2);
    brush.strokeStyle = color("--soft");
    for (const at of known.runs.slice(1)) { // a restart: a mark that is open
      if (at < first) continue;
      brush.beginPath(); brush.moveTo(x(at), middle - 11); brush.lineTo(x(at), middle + 11); brush.stroke();
    }
    const most = Math.max(...known.failures.map((one) => one.lost ?? 0), 1e-9);
    for (const failure of known.failures) {
      if (failure.at < first - 60) continue;
      const lossless = failure.lost === 0;
      const radius = lossless ? 4.5 : 5 + 6 * Math.sqrt((failure.lost ?? most) / most);
      brush.beginPath(); brush.arc(Math.max(8, x(failure.at)), middle, radius, 0, 7);
      brush.fillStyle = lossless ? color("--card") : color("--lost");
      brush.strokeStyle = lossless ? color("--well") : color("--card");
      brush.lineWidth = lossless ? 2.5 : 1.5;
      brush.fill(); brush.stroke();
    }
  }
}

/** The third screen. */
export class FailureScreen {
  constructor(number) {
    this.number = Number(number); this.seen = "";
    this.element = h("div", {});
  }

  update() {
    const failure = known.failures.find((one) => one.number === this.number);
    const seen = JSON.stringify(failure || null);
    if (seen === this.seen && this.element.childNodes.length) return;
    this.seen = seen;
    const back = h("a", { class: "back", href: "#/" }, "← Overview");
    if (!failure) {
      this.element.replaceChildren(back, h("p", { class: "empty" }, `There is no failure #${this.number}.`));
      return;
    }
    const taken = Object.values(failure.seconds).reduce((a, b) => a + b, 0);
    this.element.replaceChildren(back, h("h2", { class: "screen-title" }, `Failure #${failure.number}`),
      h("p", { class: "story" }, this.told(failure)),
      h("div", { class: "grid" },
        h("section", { class: "card" }, h("dl", { class: "facts" },
          this.fact("when", day(failure.at)), this.fact("epoch", count(failure.epoch)),
          this.fact("lost, as measured", amount(failure.lost)), this.fact("could have been", amount(failure.allowed)),
          this.fact("pause", seconds(failure.pause)), this.fact("restoring took", seconds(taken)))),
        h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Phases"), h("span", { class: "note" }, "of the slowest slot; slots recover side by side")),
          phaseBar(failure, true), this.phaseKeys(failure)),
        h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Slots"), h("span", { class: "note" }, "lost, beside the bound of it")), this.table(failure))));
  }

  fact(name, value) { return h("div", {}, h("dt", {}, name), h("dd", {}, value)); }

  told(failure) {
    const lost = failure.slots.filter((one) => one.what === "recovery");
    const words = [...failure.notes];
    if (lost.length) {
      const why = [...new Set(lost.map((one) => one.why))].join("; ");
      words.push(`${plural(lost.length, "slot")} had to be restored (${why}).`);
      words.push(failure.lost === 0 ? "Their backups held everything: nothing was lost." : `The answer is wrong by at most ${amount(failure.lost)} more than before; the thresholds allowed ${amount(failure.allowed)}.`);
    } else if (failure.slots.length) words.push(`${plural(failure.slots.length, "slot")} took back what was half applied and ran the epoch again. Nothing was lost.`);
    return words.join(" ");
  }

  phaseKeys(failure) {
    const colors = ["--well", "--cause-snapshot", "--risk", "--cause-every-items", "--faint"];
    const parts = Object.entries(failure.seconds).filter(([, value]) => value > 0);
    return h("ul", { class: "keylist" }, parts.map(([name, value], at) => {
      const mark = h("i");
      mark.style.background = `var(${colors[at % colors.length]})`;
      return h("li", {}, mark, `${WORDS[name] || name} `, h("b", {}, seconds(value)));
    }));
  }

  table(failure) {
    const rows = failure.slots.map((one) => h("tr", {},
      h("td", { class: "name" }, h("a", { href: `#/slot/${encodeURIComponent(one.operator)}/${one.slot}` }, `${one.operator} / ${one.slot}`)),
      h("td", { class: "num" }, one.lost === 0 ? "nothing" : amount(one.lost)), h("td", { class: "num" }, amount(one.allowed)),
      h("td", { class: "num hide-narrow" }, one.backup_epoch < 0 ? "–" : count(one.backup_epoch)), h("td", { class: "num hide-narrow" }, bytes(one.bytes)),
      h("td", { class: "name hide-narrow" }, one.executor)));
    return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "slot"), h("th", { class: "num" }, "lost"), h("th", { class: "num" }, "θ allowed"),
      h("th", { class: "num hide-narrow" }, "backup of epoch"), h("th", { class: "num hide-narrow" }, "read"), h("th", { class: "hide-narrow" }, "now on"))), h("tbody", {}, rows)));
  }

  theme() {}
  end() {}
}
