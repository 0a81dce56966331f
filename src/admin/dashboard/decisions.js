// The latest requests, each with its reason; a click tells its story.

import {
  REASONS,
  byId,
  clock,
  el,
  keyed,
  millis,
  number,
  percent,
  reasonClass,
  setText,
  swatch,
} from "./dom.js";
import { tellRecord } from "./story.js";

// Rows kept, as many as the edge remembers.
const MOST = 512;
const SHOWN = 100;

let known = [];
let models = [];
let chosen = "";
let isOfOneModel = true;

export const start = () => {
  byId("reason-filter").append(...Object.keys(REASONS).map((reason) => el("option", {}, reason)));
  for (const id of ["reason-filter", "decision-filter", "decision-hold"])
    byId(id).addEventListener("input", draw);
};

const keyOf = (record) => `${record.time} ${record.request_id}`;

// New ones go on top of those that are known; what came and went in between is not seen.
export const add = (records) => {
  const old = new Set(known.map(keyOf));
  known = [...records.filter((record) => !old.has(keyOf(record))), ...known].slice(0, MOST);
  if (!byId("decision-hold").checked) draw();
};

export const of = (overview, model) => {
  models = overview.models;
  isOfOneModel = model !== "" || models.length === 1;
  chosen = model;
};

const draw = () => {
  const reason = byId("reason-filter").value;
  const wanted = byId("decision-filter").value.trim().toLowerCase();
  const words = (r) =>
    `${r.worker ?? ""} ${r.request_id} ${r.outcome} ${r.error ?? ""} ${r.model} ${r.path} ${r.status} ${r.client}`.toLowerCase();
  const found = known
    .filter((record) => chosen === "" || record.model === chosen)
    .filter((record) => reason === "" || record.decision === reason)
    .filter((record) => words(record).includes(wanted));
  keyed(byId("decision-table").tBodies[0], found.slice(0, SHOWN), keyOf, row, (node) => {
    node.cells[3].hidden = isOfOneModel;
  });
  byId("decision-table").tHead.rows[0].cells[3].hidden = isOfOneModel;
  const count = found.length > SHOWN ? `${SHOWN} of ${number(found.length)}` : number(found.length);
  setText(byId("decisions-caption"), `Latest requests, newest first: ${count}`);
};

const row = (record) => {
  const { estimated, reported, matched, cached } = record.prompt_tokens;
  const tokens = reported ?? estimated;
  const held = cached ?? matched;
  const share = tokens && held !== null ? held / tokens : null;
  const tell = () =>
    tellRecord(
      record,
      models.find((model) => model.name === record.model),
    );
  const node = el(
    "tr",
    { class: record.outcome === "ok" ? "" : "bad", onclick: tell },
    el("td", {}, clock(record.time * 1000)),
    el("td", {}, swatch(reasonClass(record.decision)), record.decision ?? "–"),
    el("td", {}, record.worker ?? "–"),
    el("td", {}, record.model),
    el("td", { class: "number" }, number(tokens)),
    el(
      "td",
      { class: "bar", title: cached === null ? "as the index believes" : "as the answer says" },
      percent(share),
    ),
    el("td", { class: "number" }, millis(record.ttft_ms)),
    el("td", { class: "number" }, millis(record.total_ms)),
    el("td", {}, outcomeOf(record)),
    el(
      "td",
      {},
      el("button", { type: "button", "aria-label": `Story of ${record.request_id}` }, "Story"),
    ),
  );
  node.cells[5].style.setProperty("--share", `${Math.round(100 * Math.min(1, share ?? 0))}%`);
  return node;
};

export const outcomeOf = (record) => {
  const words = [record.outcome];
  if (record.status !== 200) words.push(record.status === 0 ? "no status" : String(record.status));
  if (record.error) words.push(record.error);
  if (record.attempts > 1) words.push(`${record.attempts} attempts`);
  return words.join(", ");
};
