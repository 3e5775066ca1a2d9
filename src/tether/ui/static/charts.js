// Charts over time, drawn by uPlot, in the colours of the theme.

import { color } from "./dom.js";

const font = "12px system-ui, sans-serif";

const minutes = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const moments = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const days = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** Marks of the time axis in one line each, as fine as they lie. */
function times(marks) {
  const gap = marks.length > 1 ? marks[1] - marks[0] : 60;
  const shown = gap >= 86400 ? days : gap >= 60 ? minutes : moments;
  return marks.map((at) => shown.format(new Date(at * 1000)));
}

/** A chart in an element; `draw` gives its series when the theme has changed. */
export class Chart {
  constructor(element, series, options = {}) {
    this.element = element; this.series = series; this.options = options; this.plot = null; this.data = null;
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", options.label || "A chart over time");
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(element);
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    if (this.plot) this.plot.setSize({ width, height });
    else if (this.data) this.build();
  }

  build() {
    const axis = { stroke: color("--faint"), font, grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const { value = String, whole = false, stacked = false, top = null } = this.options;
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    this.plot = new uPlot({
      width, height, padding: [8, 24, 0, 0], // the last mark of the time axis has its place
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      legend: { show: false },
      scales: { y: { range: (_, low, high) => [0, (top ? top(high) : high) * 1.08 || 1] } },
      axes: [
        { ...axis, grid: { show: false }, size: 26, space: 90, values: (_, marks) => times(marks) },
        { ...axis, size: 58, splits: undefined, space: 34, values: (_, marks) => marks.map((one) => (one === null || (whole && one % 1) ? "" : value(one))) },
      ],
      series: [{}, ...this.series().map((one) => ({ points: { show: false }, width: 2, ...one }))],
      hooks: this.options.hover ? { setCursor: [(plot) => this.options.hover(plot.cursor.idx)] } : {},
    }, this.data, this.element);
    this.stacked = stacked;
  }

  set(data) {
    this.data = data;
    this.tell();
    if (!this.plot) this.build(); else this.plot.setData(data);
  }

  /** The newest values in words, for those who do not see the lines. */
  tell() {
    const { label, names, value } = this.options;
    if (!names) return;
    const at = this.data[0].length - 1;
    const said = names.map((name, place) => [name, this.data[place + 1][at]]).filter(([, one]) => one !== null && one !== undefined);
    const words = said.length ? `${label}. Now: ${said.map(([name, one]) => `${name} ${value(one)}`).join(", ")}` : label;
    if (this.element.getAttribute("aria-label") !== words) this.element.setAttribute("aria-label", words);
  }

  redraw() {
    if (this.plot) { this.plot.destroy(); this.plot = null; this.build(); }
  }

  end() { this.watch.disconnect(); if (this.plot) this.plot.destroy(); }
}

export const bars = () => uPlot.paths.bars({ size: [0.82, 40], gap: 0 });
export const steps = () => uPlot.paths.stepped({ align: 1 });

/** Entries put into at most `most` bins of equal time; each bin is given to `sum` with its entries. */
export function binned(entries, most, sum) {
  if (!entries.length) return [];
  const first = entries[0].at, last = entries[entries.length - 1].at;
  const exact = (last - first) / most;
  const size = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].find((one) => one >= exact) || exact;
  const bins = [];
  let at = Math.floor(first / size), here = [];
  for (const entry of entries) {
    const bin = Math.floor(entry.at / size);
    while (at < bin) { bins.push(sum(here, (at + 0.5) * size, size)); here = []; at += 1; }
    here.push(entry);
  }
  bins.push(sum(here, (at + 0.5) * size, Math.max(0.5, Math.min(size, last - at * size || size))));
  return bins;
}
