// Learned routes: how fast each was measured to be, and what it gets.

import { byId, counted, el, keyed, number, percent, setText, svg } from "./dom.js";

const WIDTH = 220;

export const show = (routing) => {
  byId("routing").hidden = routing.models.length === 0;
  byId("routing-link").hidden = routing.models.length === 0;
  keyed(
    byId("routes"),
    routing.models,
    (model) => model.model,
    make,
    (box, model) => update(box, model, model.config ?? routing.config),
  );
};

const HEADS = [
  "Route",
  "Layers",
  "tok/s",
  "Prior",
  "Coefficient",
  "Share",
  "Samples",
  "Weight",
  "Status",
];
const NUMBERS = ["tok/s", "Prior", "Coefficient", "Share", "Samples", "Weight"];

const make = (model) =>
  el(
    "div",
    { class: "card" },
    el("h3", {}, model.model),
    el("p", { class: "note" }),
    el(
      "div",
      { class: "scroll", role: "region", tabindex: "0", "aria-label": `Routes of ${model.model}` },
      el(
        "table",
        {},
        el("caption", {}),
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            HEADS.map((name) =>
              el("th", { scope: "col", class: NUMBERS.includes(name) && "number" }, name),
            ),
          ),
        ),
        el("tbody"),
      ),
    ),
  );

const update = (box, model, settings) => {
  const [, note, scroll] = box.children;
  const table = scroll.firstElementChild;
  const half = settings.stats_half_life_s;
  setText(
    note,
    `explore_share ${settings.explore_share} · weight_alpha ${settings.weight_alpha} · stats_half_life ${half} s · min_sample_tokens ${settings.min_sample_tokens}${settings.choice ? ` · choice ${settings.choice}` : ""}`,
  );
  setText(
    table.caption,
    `Epoch ${model.topology_epoch}: ${counted(model.candidates.length, "route")} complete now, best prior first`,
  );
  const last = Math.max(
    0,
    ...model.candidates.flatMap((route) => route.hops.map((hop) => hop.end_layer)),
  );
  const best = Math.max(1e-9, ...model.candidates.map((route) => route.tps ?? 0));
  keyed(
    table.tBodies[0],
    model.candidates,
    (route) => route.signature,
    (route) => row(route, last),
    (node, route) => fill(node, route, best),
  );
};

const row = (route, last) =>
  el(
    "tr",
    {},
    el(
      "th",
      { scope: "row", title: route.signature },
      route.hops.map((hop) => hop.node).join(" → "),
    ),
    el("td", {}, layers(route, last)),
    ...NUMBERS.map((name) =>
      el("td", { class: `number ${name === "tok/s" || name === "Share" ? "bar" : ""}` }),
    ),
    el("td", {}, el("span", {})),
  );

const fill = (node, route, best) => {
  const [, , tps, prior, coefficient, share, samples, weight, status] = node.cells;
  const decimal = (value, most) => value.toLocaleString("en", { maximumFractionDigits: most });
  setText(tps, route.tps === null ? "–" : decimal(route.tps, 1));
  tps.style.setProperty("--share", `${Math.round((100 * (route.tps ?? 0)) / best)}%`);
  setText(prior, decimal(route.prior_tps, 1));
  setText(coefficient, route.coefficient === null ? "–" : decimal(route.coefficient, 2));
  setText(share, percent(route.expected_share));
  share.style.setProperty("--share", `${Math.round(100 * route.expected_share)}%`);
  setText(samples, number(route.samples));
  setText(weight, decimal(route.weight, 2));
  setText(status.firstElementChild, route.status);
  status.firstElementChild.className = `tag s-${route.status}`;
};

// Which node computes which layers.
const layers = (route, last) => {
  const unit = WIDTH / (last + 1);
  const said = route.hops
    .map((hop) => `${hop.node} layers ${hop.start_layer} to ${hop.end_layer}`)
    .join(", ");
  const parts = route.hops.flatMap((hop, at) => {
    const width = (hop.end_layer + 1 - hop.start_layer) * unit;
    const x = hop.start_layer * unit;
    const text = `${hop.start_layer}–${hop.end_layer}`;
    return [
      svg("rect", {
        class: `hop hop-${at % 4}`,
        x,
        y: 1,
        width: Math.max(1, width - 1),
        height: 18,
        rx: 3,
      }),
      ...(text.length * 7 < width
        ? [
            svg(
              "text",
              { class: "hop-text", x: x + width / 2, y: 14, "text-anchor": "middle" },
              text,
            ),
          ]
        : []),
    ];
  });
  return svg(
    "svg",
    {
      class: "layers",
      role: "img",
      "aria-label": said,
      width: WIDTH,
      height: 20,
      viewBox: `0 0 ${WIDTH} 20`,
    },
    parts,
  );
};
