// Elements and words. Whatever comes from elsewhere gets into the page as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

const filled = (node, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
};

export const el = (tag, attributes = {}, ...children) =>
  filled(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

export const byId = (id) => document.getElementById(id);

// Writes only what changed: a screen reader and a selection are left alone otherwise.
export const setText = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

export const setClass = (node, name) => {
  if (node.className !== name) node.className = name;
};

// Rows that stay the same elements while their keys stay: focus and scroll position survive. What is gone
// leaves first, so that the others need not move.
export const keyed = (parent, items, key, make, update) => {
  const wanted = new Set(items.map(key));
  const known = new Map();
  for (const child of [...parent.children]) {
    const name = child.dataset.key;
    if (wanted.has(name) && !known.has(name)) known.set(name, child);
    else child.remove();
  }
  let at = parent.firstElementChild;
  items.forEach((item, place) => {
    const name = key(item);
    let node = known.get(name);
    known.delete(name);
    if (!node) {
      node = make(item);
      node.dataset.key = name;
    }
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
    update(node, item, place);
  });
};

const digits = (value, most) => value.toLocaleString("en", { maximumFractionDigits: most });

export const number = (value) => (value === null || value === undefined ? "–" : digits(value, 0));

export const rate = (value) => digits(value, value < 10 ? 1 : 0);

export const percent = (share) =>
  share === null ? "–" : `${digits(100 * share, share < 0.1 ? 1 : 0)} %`;

export const millis = (value) => {
  if (value === null || value === undefined) return "–";
  if (value < 1000) return `${digits(value, 0)} ms`;
  if (value < 120_000) return `${digits(value / 1000, value < 10_000 ? 2 : 1)} s`;
  return `${digits(value / 60_000, 1)} min`;
};

export const compact = (value) =>
  value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });

export const clock = (time) => new Date(time).toLocaleTimeString("en-GB");

export const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

// Reasons of decisions, in the order they are stacked, with what they mean.
export const REASONS = {
  cache_candidate: "to an owner of its prefix",
  owner: "to an owner, which costs least",
  exploit: "along a proven route",
  home: "nobody owns the prefix: to its home",
  least_cost: "nobody owns the prefix: to the least cost",
  least_load: "no prefix to keep together: to the least load",
  round_robin: "where it was their turn",
  scout: "along a route that is to be measured",
  "greedy-fallback": "along the best route by benchmark, as none is proven",
  pinned: "along the client's own route",
  diverted: "away from its owners",
  saturation_pin: "back to an owner of its prefix, as everybody queues",
};

export const reasonClass = (reason) => (reason in REASONS ? `r-${reason}` : "r-other");

export const swatch = (kind) => el("i", { class: `swatch ${kind}`, "aria-hidden": "true" });
