// The panel at the top: banners, models, figures and the four pictures.

import { Chart, smooth, span, timeOf } from "./charts.js";
import {
  REASONS,
  byId,
  counted,
  el,
  keyed,
  millis,
  number,
  percent,
  rate,
  reasonClass,
  setClass,
  setText,
} from "./dom.js";

// Samples a shown rate, and a shown hit rate, is the mean of: 10 and 30 seconds.
const RATE_WIDTH = 5;
const HIT_WIDTH = 15;
// A saturation that comes and goes is one state, not many.
const SATURATED_FOR_MS = 10_000;
// Models shown as chips; the selector has all.
const MOST_CHIPS = 40;
// Names, and saturated models, in one banner or as many.
const MOST_NAMES = 3;

const total = (samples, value) => samples.reduce((sum, sample) => sum + value(sample), 0);
const perSecond = (samples, value) =>
  total(samples, value) /
  Math.max(
    total(samples, (s) => s.seconds),
    1e-9,
  );
const all = (counts) => Object.values(counts).reduce((sum, count) => sum + count, 0);
const failed = (sample) => all(sample.outcomes) - (sample.outcomes.ok ?? 0);
const hitRate = (samples) => {
  const prompts = total(samples, (sample) => sample.prompt_tokens);
  return prompts === 0 ? null : total(samples, (sample) => sample.cached_tokens) / prompts;
};

const CHARTS = [
  new Chart({
    id: "chart-rate",
    title: "Requests per second",
    note: "mean of 10 s",
    show: rate,
    series: [
      { name: "all", label: "all", kind: "c-main" },
      { name: "failed", label: "not ok", kind: "c-bad" },
    ],
    values: (samples) => [
      smooth(samples, RATE_WIDTH, (some) => perSecond(some, (sample) => all(sample.outcomes))),
      smooth(samples, RATE_WIDTH, (some) => perSecond(some, failed)),
    ],
  }),
  new Chart({
    id: "chart-ttft",
    title: "Time to first token",
    note: "streamed answers of 30 s; logarithmic",
    show: millis,
    scale: "log",
    series: [
      { name: "p50", label: "p50", kind: "c-main" },
      { name: "p99", label: "p99", kind: "c-high" },
    ],
    values: (samples) => [samples.map((s) => s.ttft_p50_ms), samples.map((s) => s.ttft_p99_ms)],
  }),
  new Chart({
    id: "chart-reasons",
    title: "Decisions by reason",
    note: "per second, mean of 10 s",
    show: rate,
    stacked: true,
    series: Object.keys(REASONS).map((name) => ({
      name,
      label: name,
      kind: reasonClass(name),
      optional: true,
    })),
    values: (samples) =>
      Object.keys(REASONS).map((reason) =>
        smooth(samples, RATE_WIDTH, (some) =>
          perSecond(some, (sample) => sample.reasons[reason] ?? 0),
        ),
      ),
  }),
  new Chart({
    id: "chart-hits",
    title: "Hit rate",
    note: "prompt tokens that engines report as cached, of 30 s",
    show: percent,
    scale: "share",
    series: [{ name: "hits", label: "cached", kind: "c-main" }],
    values: (samples) => [smooth(samples, HIT_WIDTH, hitRate)],
  }),
  new Chart({
    id: "chart-load",
    title: "Load",
    note: "requests; queue and running as workers report",
    show: number,
    series: [
      { name: "waiting", label: "queue", kind: "c-high" },
      { name: "running", label: "running", kind: "c-main" },
      { name: "in_flight", label: "in flight", kind: "c-soft" },
    ],
    values: (samples) => [
      samples.map((s) => s.waiting),
      samples.map((s) => s.running),
      samples.map((s) => s.in_flight),
    ],
  }),
];

// Where the reader looks: a sample, or the latest one as it comes.
let looked = null;
let view = null;
const scrub = byId("scrub");

export const start = () => {
  byId("charts").append(...CHARTS.map((chart) => chart.box));
  scrub.addEventListener("input", () => look(Number(scrub.value)));
  for (const chart of CHARTS) {
    chart.plot.addEventListener("pointermove", (event) => {
      if (view?.samples.length) look(chart.nearest(event, view));
    });
    chart.plot.addEventListener("pointerleave", () => look(null));
  }
  new ResizeObserver(draw).observe(byId("charts"));
};

const look = (at) => {
  const samples = view?.samples ?? [];
  looked = at === null || at >= samples.length - 1 ? null : samples[at].at;
  draw();
};

const draw = () => {
  if (!view) return;
  const { samples } = view;
  const found = looked === null ? -1 : samples.findIndex((sample) => looked <= sample.at);
  const at = found === -1 ? samples.length - 1 : found;
  const to = samples.length === 0 ? 0 : samples[samples.length - 1].at;
  Object.assign(view, { to, from: to - span(samples), at, seen: found !== -1 });
  for (const chart of CHARTS) chart.draw(view);
  scrub.max = Math.max(0, samples.length - 1);
  scrub.value = at;
  scrub.setAttribute("aria-valuetext", timeOf(samples, at));
  setText(byId("scrub-time"), timeOf(samples, at));
};

export const show = (overview, samples, chosen, choose) => {
  view = { samples };
  draw();
  figures(samples.slice(-RATE_WIDTH), samples);
  chips(overview.models, chosen, choose);
};

const figures = (latest, samples) => {
  const last = latest[latest.length - 1];
  const answered = total(latest, (sample) => all(sample.outcomes));
  const decided = total(latest, (sample) => all(sample.reasons));
  const pins = total(latest, (sample) => sample.reasons.saturation_pin ?? 0);
  const bad = total(latest, failed);
  const rows = [
    [
      "Requests/s",
      last
        ? rate(
            answered /
              Math.max(
                total(latest, (s) => s.seconds),
                1e-9,
              ),
          )
        : "–",
    ],
    ["Not ok", answered === 0 ? "–" : percent(bad / answered), bad > 0 && "bad"],
    ["TTFT p50", millis(last?.ttft_p50_ms)],
    ["TTFT p99", millis(last?.ttft_p99_ms)],
    ["Hit rate", percent(hitRate(samples.slice(-HIT_WIDTH)))],
    ["Queue", number(last?.waiting)],
    ["In flight", number(last?.in_flight)],
    ["Pinned", decided === 0 ? "–" : percent(pins / decided), pins > 0 && "pin"],
  ];
  keyed(
    byId("figures"),
    rows,
    ([name]) => name,
    ([name]) => el("div", {}, el("dt", {}, name), el("dd")),
    (node, [, value, mark]) => {
      setText(node.lastElementChild, value);
      setClass(node, mark || "");
    },
  );
};

const chips = (models, chosen, choose) => {
  const list = byId("models");
  list.hidden = models.length < 2;
  keyed(
    list,
    models.slice(0, MOST_CHIPS),
    (model) => model.name,
    (model) =>
      el(
        "li",
        {},
        el(
          "button",
          { type: "button", onclick: () => choose(model.name) },
          el("b"),
          " ",
          el("span"),
        ),
      ),
    (node, model) => {
      const [name, note] = node.firstElementChild.children;
      setText(name, model.name);
      name.title = model.name;
      const words = [`${model.routable}/${model.workers}`];
      if (!model.ready) words.push("not served");
      if (model.saturated) words.push("saturated");
      if (model.gate_inert) words.push("gate inert");
      setText(note, words.join(" · "));
      setClass(
        node.firstElementChild,
        !model.ready ? "bad" : model.saturated || model.gate_inert ? "warn" : "",
      );
      node.firstElementChild.setAttribute("aria-pressed", String(model.name === chosen));
    },
  );
};

// What an operator should know before anything else; the same list until something changes.
export const banners = (overview, samples, silent) => {
  const out = [];
  if (silent)
    out.push(["bad", "silent", `The edge does not answer (${silent}). What is shown is old.`]);
  if (!overview) return put(out);
  if (overview.leaving) out.push(["warn", "leaving", `Process ${overview.pid} is about to leave.`]);
  const names = (models) => {
    const some = models
      .slice(0, MOST_NAMES)
      .map((model) => model.name)
      .join(", ");
    return models.length > MOST_NAMES ? `${some} and ${models.length - MOST_NAMES} more` : some;
  };
  const unserved = overview.models.filter((model) => !model.ready);
  if (unserved.length)
    out.push(["bad", "unserved", `No worker can take requests of: ${names(unserved)}.`]);
  const rejected = overview.config.last_error;
  if (rejected) {
    const count = counted(rejected.errors.length, "problem");
    out.push([
      "bad",
      "rejected",
      `The last reload was rejected, ${count}; generation ${overview.config.generation} stays in force. `,
      ["#configuration", "See what is wrong"],
    ]);
  }
  const saturated = overview.models.filter((model) => model.saturated);
  const last = samples[samples.length - 1];
  const lately = samples.some(
    (sample) => sample.saturated && last.at - sample.at < SATURATED_FOR_MS,
  );
  for (const model of saturated.slice(0, MOST_NAMES))
    out.push(["warn", `saturated ${model.name}`, saturation(model)]);
  if (saturated.length > MOST_NAMES)
    out.push([
      "warn",
      "saturated more",
      `${counted(saturated.length - MOST_NAMES, "more model")} saturated.`,
    ]);
  if (saturated.length === 0 && lately)
    out.push(["warn", "saturated lately", "The fleet was saturated a moment ago."]);
  const inert = overview.models.filter((model) => model.gate_inert);
  if (inert.length)
    out.push([
      "warn",
      "inert",
      `The gate is inert for ${names(inert)}: worker_queue_limit is set, and no worker has a fresh report.`,
    ]);
  put(out);
};

const saturation = (model) => {
  const what = `The fleet of ${model.name} is saturated: every worker has ${counted(model.bound, "request")} or more waiting`;
  if (model.saturation_queue_floor !== null) return `${what}. Prompts are pinned to their owners.`;
  if (model.worker_queue_limit !== null) return `${what}. The gate lets owners in again.`;
  return `${what}.`;
};

const put = (list) =>
  keyed(
    byId("banners"),
    list,
    ([, key]) => key,
    ([kind, , , link]) =>
      el(
        "p",
        { class: `banner ${kind}` },
        el("span"),
        link ? el("a", { href: link[0] }, link[1]) : null,
      ),
    (node, [, , text]) => setText(node.firstElementChild, text),
  );
