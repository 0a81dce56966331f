// Asks every two seconds while somebody looks, and hands the answers to the panels.

import { Refused, get, post, unlocked } from "./ask.js";
import { byId, el, setClass, setText } from "./dom.js";
import * as config from "./config.js";
import * as decisions from "./decisions.js";
import * as overview from "./overview.js";
import * as routing from "./routing.js";
import { tellExplanation } from "./story.js";
import * as workers from "./workers.js";

const EVERY_MS = 2000;
const ROUTES_EVERY_MS = 4000;
// As many as the edge keeps.
const MOST_SAMPLES = 300;
const LATEST = 100;

let model = "";
let samples = [];
// Up to where the samples are known here, in the edge's words.
let cursor = "";
let latest = null;
let routesAt = -Infinity;

// A space as %20: the edge takes a plus for what it is.
const query = (values) =>
  new URLSearchParams(Object.entries(values).filter(([, value]) => value !== ""))
    .toString()
    .replaceAll("+", "%20");

// A sample's place on the time axis is where the one before it ends: the time of day may be set.
const placed = (more) => {
  let at = samples.length === 0 ? 0 : samples[samples.length - 1].at;
  return more.map((sample) => ({ ...sample, at: (at += 1000 * sample.seconds) }));
};

const look = async () => {
  const asked = model;
  const since = cursor;
  const [now, log] = await Promise.all([
    get(`/v1/overview?${query({ model, since })}`),
    get(`/v1/decisions?limit=${LATEST}`),
  ]);
  // Another model was chosen meanwhile, or this one anew.
  if (asked !== model || since !== cursor) return;
  latest = now;
  samples = [...samples, ...placed(now.samples)].slice(-MOST_SAMPLES);
  cursor = now.cursor;
  if (model !== "" && !now.models.some((of) => of.name === model)) return choose("");
  selector(now.models);
  overview.show(now, samples, model, choose);
  workers.show(now, model);
  decisions.of(now, model);
  decisions.add(log.decisions);
  config.show(now);
  await routes(now.models);
};

const routes = async (models) => {
  const isLearned = models.some(
    (of) => of.policy === "learned" && (model === "" || of.name === model),
  );
  if (!isLearned) return routing.show({ models: [] });
  if (performance.now() - routesAt < ROUTES_EVERY_MS - 100) return;
  routesAt = performance.now();
  routing.show(await get(`/v1/routing?${query({ model })}`));
};

const selector = (models) => {
  const select = byId("model");
  const names = models.map((of) => of.name);
  const key = names.join("\n");
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    const every =
      names.length === 1 ? [] : [el("option", { value: "" }, `all ${names.length} models`)];
    select.replaceChildren(...every, ...names.map((name) => el("option", { value: name }, name)));
  }
  select.value = names.length === 1 ? names[0] : model;
};

const choose = (name) => {
  // Chosen again: all of them.
  model = name === model ? "" : name;
  samples = [];
  cursor = "";
  routesAt = -Infinity;
  void turn();
};

const pulse = (kind, text) => {
  setClass(byId("pulse"), `pulse ${kind}`);
  setText(byId("pulse-text"), text);
};

const turn = async () => {
  try {
    await look();
    overview.banners(latest, samples, null);
    pulse("good", "live");
  } catch (fault) {
    if (fault instanceof Refused) {
      pulse("", "locked");
      await unlocked();
      return turn();
    }
    overview.banners(
      latest,
      samples,
      fault.name === "TimeoutError" ? "no answer in time" : fault.message,
    );
    pulse("bad", "no answer");
  }
};

let isTurning = false;
const tick = async () => {
  if (isTurning || document.hidden) return;
  isTurning = true;
  await turn();
  isTurning = false;
};

const explain = async (event) => {
  event.preventDefault();
  setText(byId("explain-fault"), "");
  try {
    const said = await post(
      `/v1/explain?${query({ path: byId("explain-path").value })}`,
      byId("explain-body").value,
    );
    if (said.error) setText(byId("explain-fault"), said.error.message);
    else tellExplanation(said);
  } catch (fault) {
    setText(byId("explain-fault"), fault.message);
  }
};

overview.start();
workers.start();
decisions.start();
byId("model").addEventListener("input", (event) => {
  if (event.target.value !== model) choose(event.target.value);
});
byId("explain-form").addEventListener("submit", explain);
document.addEventListener("visibilitychange", tick);
setInterval(tick, EVERY_MS);
void tick();
