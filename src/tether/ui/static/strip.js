// All slots side by side, worst first: one bar each, as high as its divergence, the top is its θ.

import { canvas, color, h } from "./dom.js";
import { amount, percent } from "./format.js";
import { known, operatorName } from "./store.js";

/** Share of θ that a slot has used; null where either is not known or has no limit. */
export function share(slots, at) {
  const divergence = slots.divergence[at], theta = slots.theta[at];
  if (divergence === null || theta === null) return null;
  return theta > 0 ? divergence / theta : divergence > 0 ? 1 : 0;
}

/** Places of all slots, the fullest first; those of which nothing is known last. */
export function worstFirst(slots) {
  const shares = slots.slot.map((_, at) => share(slots, at));
  const order = slots.slot.map((_, at) => at);
  order.sort((a, b) => (shares[b] ?? -1) - (shares[a] ?? -1) || a - b);
  return { order, shares };
}

export const slotHref = (slots, at) =>
  `#/slot/${encodeURIComponent(operatorName(slots.operator[at]))}/${slots.slot[at]}`;

export class Strip {
  constructor(open) {
    this.chosen = -1; this.sorted = null;
    this.element = h("canvas", {
      class: "strip", tabindex: "0", role: "img",
      onclick: (event) => { const at = this.under(event.offsetX); if (at !== null) open(at); },
      onmousemove: (event) => { this.chosen = this.place(event.offsetX); this.draw(); },
      onmouseleave: () => { this.chosen = -1; this.draw(); },
      onblur: () => { this.chosen = -1; this.draw(); },
      onkeydown: (event) => this.key(event, open),
    });
    this.label = h("span", { "aria-live": "polite" });
    this.scale = h("p", { class: "scale" }, this.label, h("span", { class: "hint" }, "top edge: θ; amber from 80 %: a backup is near"));
  }

  key(event, open) {
    const last = (this.sorted?.order.length || 0) - 1;
    const moves = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 };
    if (event.key in moves) {
      this.chosen = Math.max(0, Math.min(last, this.chosen + moves[event.key]));
      this.draw();
      event.preventDefault();
    } else if (event.key === "Enter" && this.chosen >= 0) open(this.sorted.order[this.chosen]);
  }

  place(x) {
    const slots = this.sorted?.order.length || 0;
    return Math.max(0, Math.min(slots - 1, Math.floor((x / this.element.clientWidth) * slots)));
  }

  under(x) { return this.sorted ? this.sorted.order[this.place(x)] : null; }

  update() {
    if (!known.slots) return;
    this.sorted = worstFirst(known.slots);
    this.draw();
  }

  draw() {
    const slots = known.slots, made = this.sorted && canvas(this.element);
    if (!made) return;
    const { brush, width, height } = made, { order, shares } = this.sorted;
    const wide = width / order.length, gap = wide > 14 ? 3 : wide > 5 ? 1 : 0, foot = 2;
    const [track, well, risk, ink, faint] = ["--track", "--well", "--risk", "--ink", "--faint"].map(color);
    if (gap === 0) { brush.fillStyle = track; brush.fillRect(0, 0, width, height); }
    order.forEach((at, place) => {
      const left = place * wide, part = shares[at], broad = gap ? wide - gap : wide + 0.6; // without gaps they overlap a little: no stripes
      if (gap) { brush.fillStyle = track; brush.fillRect(left, 0, broad, height); }
      if (part === null) { brush.fillStyle = faint; brush.fillRect(left, height / 2, broad, 2); return; }
      const high = Math.max(foot, Math.min(1, part) * height);
      brush.fillStyle = part >= 0.8 ? risk : well;
      brush.fillRect(left, height - high, broad, high);
    });
    if (this.chosen >= 0) {
      brush.strokeStyle = ink; brush.lineWidth = 2;
      const broad = Math.max(wide - gap, 3);
      brush.strokeRect(Math.min(this.chosen * wide, width - broad - 1) + 1, 1, broad - 1, height - 2);
    }
    this.tell(slots, order, shares);
  }

  tell(slots, order, shares) {
    const at = order[this.chosen >= 0 ? this.chosen : 0];
    const part = shares[at];
    const name = `${operatorName(slots.operator[at])} / ${slots.slot[at]}`;
    const how = part === null ? "not known" : `${amount(slots.divergence[at])} of θ ${amount(slots.theta[at])}, ${percent(part)}`;
    const said = `${this.chosen >= 0 ? "" : "fullest: "}${name}: ${how}`;
    if (this.label.textContent !== said) this.label.textContent = said;
    const label = `${order.length} slots, worst first; ${said}`;
    if (this.element.getAttribute("aria-label") !== label) this.element.setAttribute("aria-label", label);
  }
}
