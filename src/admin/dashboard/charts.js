// Pictures of the last minutes: lines and stacked areas over one common time axis.

import { clock, el, setText, svg, swatch } from "./dom.js";

const HEIGHT = 170;
const EDGE = { left: 52, right: 10, top: 10, bottom: 20 };
// What the time axis may span, minutes.
const SPANS = [1, 2, 5, 10];

export const span = (samples) => {
  if (samples.length === 0) return SPANS[0] * 60_000;
  const held = samples[samples.length - 1].at - samples[0].at;
  return 60_000 * (SPANS.find((minutes) => held <= minutes * 60_000) ?? SPANS[SPANS.length - 1]);
};

// The mean over so many samples up to each: one alone is two seconds, and jumps.
export const smooth = (samples, width, value) =>
  samples.map((_, at) => value(samples.slice(Math.max(0, at + 1 - width), at + 1)));

const niceTop = (value) => {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => value <= top);
};

const linear = (top) => {
  const most = niceTop(Math.max(top, 1e-9) * 1.02);
  return { place: (value) => value / most, ticks: [0, most / 2, most] };
};

// Decades; what is below the first is on the ground.
const logarithmic = (least, most) => {
  const first = Math.floor(Math.log10(Math.max(least, 1)));
  const last = Math.max(first + 1, Math.ceil(Math.log10(Math.max(most, 1))));
  const place = (value) => Math.max(0, (Math.log10(Math.max(value, 1)) - first) / (last - first));
  const ticks = Array.from({ length: last - first + 1 }, (_, at) => 10 ** (first + at));
  return { place, ticks };
};

// `form`: id, title, note, show (a value in words), scale ("linear", "share" or "log"), stacked,
// series: [{name, label, kind}], values(samples): per series a list with null for unknown.
export class Chart {
  constructor(form) {
    this.form = form;
    this.plot = svg("svg", { class: "plot", role: "img", height: HEIGHT, width: "100%" });
    this.legend = el("ul", { class: "key" });
    this.box = el(
      "figure",
      { class: "card chart", id: form.id },
      el(
        "figcaption",
        {},
        el("strong", {}, form.title),
        " ",
        el("span", { class: "note" }, form.note),
      ),
      this.plot,
      this.legend,
    );
    this.shown = new Map();
  }

  draw(view) {
    const { samples, from, to, at, seen } = view;
    const width = Math.max(200, this.plot.clientWidth || this.box.clientWidth || 300);
    this.plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const lists = this.form.values(samples);
    const series = this.form.series.filter(
      (one, place) => !one.optional || lists[place].some((v) => v),
    );
    const values = series.map((one) => lists[this.form.series.indexOf(one)]);
    const tops = this.form.stacked ? stack(values, samples.length) : values;
    const scale = this.scale(tops.flat().filter((value) => value !== null));
    const x = (time) =>
      EDGE.left + ((time - from) / (to - from)) * (width - EDGE.left - EDGE.right);
    const y = (value) =>
      HEIGHT - EDGE.bottom - scale.place(value) * (HEIGHT - EDGE.top - EDGE.bottom);
    const xs = samples.map((sample) => x(sample.at));
    this.plot.replaceChildren(
      ...shade(samples, xs),
      ...this.grid(scale, y, width),
      ...times(x, from, to),
      ...(this.form.stacked ? areas(series, tops, xs, y) : lines(series, values, xs, y)),
      ...(seen
        ? [
            svg("line", {
              class: "cursor",
              x1: xs[at],
              x2: xs[at],
              y1: EDGE.top,
              y2: HEIGHT - EDGE.bottom,
            }),
          ]
        : []),
    );
    this.plot.setAttribute("aria-label", this.words(series, values, at));
    this.explain(series, values, at);
  }

  scale(values) {
    const most = values.length === 0 ? 1 : Math.max(...values);
    if (this.form.scale === "share") return { place: (v) => v, ticks: [0, 0.5, 1] };
    if (this.form.scale === "log") {
      return logarithmic(
        values.length === 0 ? 10 : Math.min(...values),
        values.length === 0 ? 1000 : most,
      );
    }
    return linear(Math.max(most, this.form.least ?? 1));
  }

  grid(scale, y, width) {
    return scale.ticks.flatMap((tick) => [
      svg("line", {
        class: "grid",
        x1: EDGE.left,
        x2: width - EDGE.right,
        y1: y(tick),
        y2: y(tick),
      }),
      svg(
        "text",
        { class: "tick", x: EDGE.left - 6, y: y(tick) + 4, "text-anchor": "end" },
        this.form.show(tick),
      ),
    ]);
  }

  words(series, values, at) {
    const said = series.map((one, place) => `${one.label} ${this.value(values[place][at])}`);
    return `${this.form.title}: ${said.length === 0 ? "nothing yet" : said.join(", ")}`;
  }

  value(value) {
    return value === null || value === undefined ? "–" : this.form.show(value);
  }

  explain(series, values, at) {
    const names = series.map((one) => one.name).join();
    if (this.legend.dataset.names !== names) {
      this.legend.dataset.names = names;
      this.shown.clear();
      this.legend.replaceChildren(
        ...series.map((one) => {
          const figure = el("b");
          this.shown.set(one.name, figure);
          return el("li", {}, swatch(one.kind), `${one.label} `, figure);
        }),
      );
    }
    series.forEach((one, place) =>
      setText(this.shown.get(one.name), this.value(values[place][at])),
    );
  }

  // The sample that is nearest to a pointer.
  nearest(event, view) {
    const box = this.plot.getBoundingClientRect();
    const width = box.width - EDGE.left - EDGE.right;
    const time =
      view.from + ((event.clientX - box.left - EDGE.left) / width) * (view.to - view.from);
    const far = view.samples.map((sample) => Math.abs(sample.at - time));
    return far.indexOf(Math.min(...far));
  }
}

const stack = (values, length) => {
  const ground = new Array(length).fill(0);
  return values.map((list) => list.map((value, at) => (ground[at] += value ?? 0)));
};

// Where every worker made requests wait: one shape for each time without a break.
const shade = (samples, xs) => {
  const out = [];
  let from = null;
  samples.forEach((sample, at) => {
    if (sample.saturated && from === null) from = xs[Math.max(0, at - 1)];
    const ends = from !== null && (!sample.saturated || at === samples.length - 1);
    if (!ends) return;
    const to = sample.saturated ? xs[at] : xs[at - 1];
    out.push(
      svg("rect", {
        class: "saturated",
        x: from,
        width: Math.max(0, to - from),
        y: EDGE.top,
        height: HEIGHT - EDGE.top - EDGE.bottom,
      }),
    );
    from = null;
  });
  return out;
};

// As many marks as there is room for.
const STEPS = [0.25, 0.5, 1, 2, 5];
const MARK_WIDTH = 62;

const times = (x, from, to) => {
  const minutes = (to - from) / 60_000;
  const room = Math.max(1, Math.floor((x(to) - x(from)) / MARK_WIDTH));
  const step = STEPS.find((one) => minutes / one <= room) ?? minutes;
  const out = [];
  for (let ago = 0; ago <= minutes; ago += step) {
    const text = ago === 0 ? "now" : ago % 1 ? `−${ago * 60} s` : `−${ago} min`;
    const anchor = ago === 0 ? "end" : ago === minutes ? "start" : "middle";
    out.push(
      svg(
        "text",
        { class: "tick", x: x(to - ago * 60_000), y: HEIGHT - 5, "text-anchor": anchor },
        text,
      ),
    );
  }
  return out;
};

const areas = (series, tops, xs, y) =>
  series.map((one, place) => {
    const floor = place === 0 ? xs.map(() => 0) : tops[place - 1];
    const up = xs.map((x, at) => `${x.toFixed(1)},${y(tops[place][at]).toFixed(1)}`);
    const down = xs.map((x, at) => `${x.toFixed(1)},${y(floor[at]).toFixed(1)}`).reverse();
    return svg("path", { class: `area ${one.kind}`, d: `M${[...up, ...down].join("L")}Z` });
  });

const lines = (series, values, xs, y) =>
  series.map((one, place) => {
    let path = "";
    let pen = "M";
    values[place].forEach((value, at) => {
      if (value === null) {
        pen = "M";
        return;
      }
      path += `${pen}${xs[at].toFixed(1)},${y(value).toFixed(1)}`;
      pen = "L";
    });
    return svg("path", { class: `line ${one.kind}`, d: path });
  });

export const timeOf = (samples, at) => {
  const last = samples.length - 1;
  if (samples.length === 0 || at >= last) return "now";
  const ago = Math.round((samples[last].at - samples[at].at) / 1000);
  return `${clock(samples[at].time)}, ${ago} s ago`;
};
