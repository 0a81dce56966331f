// What is in force, what was rejected, and what is hardly meant.

import { byId, clock, el, setText } from "./dom.js";

let shown = "";

export const show = (overview) => {
  const { config } = overview;
  setText(byId("version"), `Tidegate ${overview.version}, process ${overview.pid}`);
  // Rebuilt only when something changed: who reads in it keeps the place.
  const now = JSON.stringify(config);
  if (now === shown) return;
  shown = now;
  byId("config").replaceChildren(
    el(
      "dl",
      { class: "facts" },
      fact("Generation in force", String(config.generation)),
      fact(
        config.generation === 1 ? "Since the start" : "Last reload applied",
        day(config.applied),
      ),
      fact(
        "Last change",
        config.last_error ? `rejected ${day(config.last_error.time)}` : "no rejected one",
      ),
    ),
    ...problems("Why the last reload was rejected", config.last_error?.errors ?? [], "bad"),
    ...waiting(config.needs_upgrade),
    ...problems("Legal, but hardly meant", config.warnings, "warn"),
  );
};

const fact = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));

const day = (seconds) => {
  const date = new Date(seconds * 1000);
  const today = date.toDateString() === new Date().toDateString();
  return today ? clock(date) : `${date.toLocaleDateString("en-GB")} ${clock(date)}`;
};

const problems = (title, list, kind) =>
  list.length === 0
    ? []
    : [
        el(
          "div",
          { class: "scroll", role: "region", tabindex: "0", "aria-label": title },
          el(
            "table",
            { class: kind },
            el("caption", {}, title),
            el(
              "thead",
              {},
              el(
                "tr",
                {},
                ["Where", "Value", "Why"].map((name) => el("th", { scope: "col" }, name)),
              ),
            ),
            el(
              "tbody",
              {},
              list.map(({ path, value, message }) =>
                el(
                  "tr",
                  {},
                  el("th", { scope: "row" }, el("code", {}, path)),
                  el("td", {}, el("code", {}, value)),
                  el("td", {}, message),
                ),
              ),
            ),
          ),
        ),
      ];

const waiting = (keys) =>
  keys.length === 0
    ? []
    : [
        el("h3", {}, "Changed in the file, read at boot only: needs an upgrade"),
        el(
          "ul",
          {},
          keys.map((key) => el("li", {}, el("code", {}, key))),
        ),
      ];
