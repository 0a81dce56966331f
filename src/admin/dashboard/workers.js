// Workers: a picture for three of them as for three hundred, and a table with everything.

import { byId, compact, el, keyed, millis, number, percent, setClass, setText } from "./dom.js";

// With more than this the cells of the picture have no words.
const MOST_WORDED = 48;
// Rows shown before somebody asks for all.
const MOST_ROWS = 100;

// How full a cell is for each measure, and what it says.
const MEASURES = {
  waiting: {
    name: "queue",
    short: "queue",
    value: (w) => w.report.waiting,
    top: (ws, bound) => Math.max(bound, 1),
    show: number,
  },
  running: {
    name: "running",
    short: "run",
    value: (w) => w.report.running,
    top: (ws) => most(ws, (w) => w.report.running),
    show: number,
  },
  kv: { name: "KV use", short: "KV", value: (w) => w.report.kv_usage, top: () => 1, show: percent },
  in_flight: {
    name: "in flight",
    short: "sent",
    value: (w) => w.in_flight,
    top: (ws) => most(ws, (w) => w.in_flight),
    show: number,
  },
  age: {
    name: "report age",
    short: "age",
    value: (w) => w.report.age_ms,
    top: () => 2000,
    show: millis,
  },
};

const most = (workers, value) => Math.max(1, ...workers.map((worker) => value(worker) ?? 0));

const COLUMNS = [
  { key: "id", name: "Worker", text: (w) => w.id, sort: (w) => w.id },
  { key: "model", name: "Model", text: (w) => w.model, sort: (w) => w.model },
  { key: "state", name: "State", text: stateOf, sort: (w) => trouble(w) },
  {
    key: "waiting",
    name: "Queue",
    number: true,
    text: (w) => number(w.report.waiting),
    sort: (w) => w.report.waiting,
    bar: (w, s) => w.report.waiting / s.waiting,
  },
  {
    key: "running",
    name: "Running",
    number: true,
    text: (w) => number(w.report.running),
    sort: (w) => w.report.running,
    bar: (w, s) => w.report.running / s.running,
  },
  {
    key: "kv",
    name: "KV use",
    number: true,
    text: (w) => percent(w.report.kv_usage),
    sort: (w) => w.report.kv_usage,
    bar: (w) => w.report.kv_usage,
  },
  {
    key: "in_flight",
    name: "In flight",
    number: true,
    text: (w) => number(w.in_flight),
    sort: (w) => w.in_flight,
  },
  {
    key: "age",
    name: "Report",
    number: true,
    text: reportOf,
    sort: (w) => w.report.age_ms ?? Infinity,
  },
  {
    key: "breaker",
    name: "Breaker",
    text: (w) => w.breaker.replace("_", "-"),
    sort: (w) => w.breaker,
  },
  {
    key: "blocks",
    name: "Blocks held",
    number: true,
    text: (w) => compact(w.owned_blocks),
    sort: (w) => w.owned_blocks,
  },
];

function stateOf(worker) {
  const words = [worker.state];
  if (worker.role !== "plain") words.push(worker.role);
  if (!worker.healthy) words.push("unhealthy");
  return words.join(", ");
}

function reportOf(worker) {
  const { state, age_ms: age } = worker.report;
  return state === "fresh" ? millis(age) : age === null ? state : `${state}, ${millis(age)}`;
}

// 0: nothing wrong; more is worse.
function trouble(worker) {
  if (!worker.healthy) return 5;
  if (worker.breaker === "open") return 4;
  if (worker.breaker === "half_open") return 3;
  if (worker.state !== "active") return 2;
  return worker.report.state === "fresh" || worker.report.state === "absent" ? 0 : 1;
}

let rows = [];
let bounds = {};
let isOfOneModel = true;
let sorted = { key: "id", down: false };
let isEverythingShown = false;

export const start = () => {
  const head = byId("worker-table").tHead.rows[0];
  head.append(
    ...COLUMNS.map((column) =>
      el(
        "th",
        {
          scope: "col",
          class: `${column.key}-column ${column.number ? "number" : ""}`,
          "aria-sort": "none",
        },
        el("button", { type: "button", onclick: () => sortBy(column.key) }, column.name),
      ),
    ),
  );
  for (const id of ["measure", "worker-filter", "worker-trouble"])
    byId(id).addEventListener("input", draw);
  byId("worker-more").addEventListener("click", () => {
    isEverythingShown = !isEverythingShown;
    draw();
  });
};

const sortBy = (key) => {
  // Numbers are asked for to see the largest.
  const down =
    sorted.key === key
      ? !sorted.down
      : COLUMNS.find((column) => column.key === key).number === true;
  sorted = { key, down };
  draw();
};

export const show = (overview, model) => {
  rows = overview.workers;
  isOfOneModel = model !== "" || overview.models.length === 1;
  bounds = Object.fromEntries(
    overview.models.map((of) => [of.name, of.worker_queue_limit ?? of.bound]),
  );
  draw();
};

const draw = () => {
  picture();
  table();
};

const picture = () => {
  const kind = byId("measure").value;
  const measure = MEASURES[kind];
  const box = byId("heat");
  const isWorded = rows.length <= MOST_WORDED;
  setClass(box, isWorded ? "heat worded" : "heat");
  keyed(
    box,
    rows,
    (worker) => `${worker.model}\n${worker.id}`,
    (worker) =>
      el(
        "button",
        { type: "button", tabindex: "-1", "aria-hidden": "true", onclick: () => narrow(worker.id) },
        el("b"),
        el("span"),
        el("small"),
      ),
    (node, worker, at) => {
      const value = measure.value(worker);
      const top = measure.top(rows, bounds[worker.model] ?? 1);
      node.style.setProperty("--heat", `${Math.round(100 * Math.min(1, (value ?? 0) / top))}%`);
      const isNext = 0 < at && rows[at - 1].model !== worker.model;
      setClass(node, `${cellClass(worker, kind, value, top)}${isNext ? " next" : ""}`);
      const [name, said, rest] = node.children;
      setText(name, isWorded ? worker.id : "");
      setText(said, isWorded ? cellText(worker, measure, value) : "");
      setText(rest, isWorded ? cellRest(worker, kind) : "");
      node.title = `${worker.id} (${worker.model}): queue ${number(worker.report.waiting)}, running ${number(worker.report.running)}, KV ${percent(worker.report.kv_usage)}, in flight ${worker.in_flight}, ${stateOf(worker)}, breaker ${worker.breaker}, report ${reportOf(worker)}`;
    },
  );
  describe(box, measure);
  legend(measure);
};

const cellClass = (worker, kind, value, top) => {
  const words = ["cell"];
  if (worker.state !== "active") words.push("draining");
  if (!worker.healthy || worker.breaker === "open") words.push("out");
  if (value === null) words.push("unknown");
  else if (kind === "waiting" && top <= value) words.push("full");
  return words.join(" ");
};

const cellText = (worker, measure, value) => {
  if (!worker.healthy) return "unhealthy";
  if (worker.breaker !== "closed") return `breaker ${worker.breaker.replace("_", "-")}`;
  if (worker.state !== "active") return worker.state;
  return value === null
    ? "unknown"
    : `${measure.show(value)} ${measure.name === "queue" ? "waiting" : measure.name}`;
};

// The other numbers that are known.
const cellRest = (worker, kind) =>
  Object.entries(MEASURES)
    .filter(([name, measure]) => name !== kind && name !== "age" && measure.value(worker) !== null)
    .map(([, measure]) => `${measure.short} ${measure.show(measure.value(worker))}`)
    .join(" · ");

const describe = (box, measure) => {
  const full = rows.filter(
    (w) => w.report.waiting !== null && (bounds[w.model] ?? 1) <= w.report.waiting,
  ).length;
  const out = rows.filter((w) => !w.healthy || w.breaker === "open").length;
  const draining = rows.filter((w) => w.state !== "active").length;
  const unknown = rows.filter((w) => measure.value(w) === null).length;
  box.setAttribute(
    "aria-label",
    `${rows.length} workers by ${measure.name}: ${full} with a full queue, ${out} out, ${draining} draining, ${unknown} unknown. The table below has all of it.`,
  );
};

const legend = (measure) => {
  const top = measure.name === "queue" ? "its limit" : measure.show(measure.top(rows, 1));
  const key = `${measure.name} ${top}`;
  const box = byId("heat-legend");
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  const sample = (kind, name) => el("span", {}, el("i", { class: `cell ${kind}` }), ` ${name}`);
  box.replaceChildren(
    el("span", {}, `${measure.name} 0 `, el("i", { class: "ramp" }), ` ${top}`),
    ...(measure.name === "queue" ? [sample("full", "at its limit or over")] : []),
    sample("unknown", "unknown"),
    sample("draining", "draining or removed"),
    sample("out", "unhealthy or breaker open"),
  );
};

const narrow = (id) => {
  const field = byId("worker-filter");
  field.value = field.value === id ? "" : id;
  draw();
};

const table = () => {
  const wanted = byId("worker-filter").value.trim().toLowerCase();
  const isTrouble = byId("worker-trouble").checked;
  const column = COLUMNS.find((of) => of.key === sorted.key);
  const found = rows
    .filter((worker) => !isTrouble || trouble(worker) > 0)
    .filter((worker) =>
      `${worker.id} ${worker.model} ${worker.url} ${stateOf(worker)} ${worker.breaker} ${worker.report.state}`
        .toLowerCase()
        .includes(wanted),
    )
    .sort(
      (a, b) =>
        compare(column.sort(a), column.sort(b)) * (sorted.down ? -1 : 1) || compare(a.id, b.id),
    );
  const shown = isEverythingShown ? found : found.slice(0, MOST_ROWS);
  const scale = {
    waiting: most(rows, (w) => w.report.waiting),
    running: most(rows, (w) => w.report.running),
  };
  keyed(
    byId("worker-table").tBodies[0],
    shown,
    (worker) => `${worker.model}\n${worker.id}\n${worker.state === "removed"}`,
    () =>
      el(
        "tr",
        {},
        ...COLUMNS.map((of, at) =>
          el(at === 0 ? "th" : "td", { scope: at === 0 && "row", class: of.number && "number" }),
        ),
      ),
    (row, worker) => fill(row, worker, scale),
  );
  heads();
  const more = byId("worker-more");
  more.hidden = found.length <= MOST_ROWS;
  setText(
    more,
    isEverythingShown ? `Show the first ${MOST_ROWS}` : `Show all ${number(found.length)}`,
  );
  const which =
    found.length === rows.length
      ? `${number(rows.length)}`
      : `${number(found.length)} of ${number(rows.length)}`;
  setText(byId("workers-caption"), `Workers, as this edge sees them now: ${which}`);
};

const fill = (row, worker, scale) => {
  setClass(row, trouble(worker) > 2 ? "bad" : trouble(worker) > 0 ? "warn" : "");
  row.title = worker.url;
  COLUMNS.forEach((column, at) => {
    const cell = row.cells[at];
    setText(cell, column.text(worker));
    if (column.key === "model") cell.hidden = isOfOneModel;
    if (!column.bar) return;
    const share = column.bar(worker, scale);
    cell.classList.add("bar");
    cell.style.setProperty("--share", `${Math.round(100 * Math.min(1, share ?? 0))}%`);
    cell.classList.toggle(
      "full",
      column.key === "waiting" &&
        worker.report.waiting !== null &&
        (bounds[worker.model] ?? 1) <= worker.report.waiting,
    );
  });
};

const heads = () => {
  const head = byId("worker-table").tHead.rows[0];
  COLUMNS.forEach((column, at) => {
    head.cells[at].setAttribute(
      "aria-sort",
      column.key !== sorted.key ? "none" : sorted.down ? "descending" : "ascending",
    );
    if (column.key === "model") head.cells[at].hidden = isOfOneModel;
  });
};

// Names by the numbers in them, what is unknown first.
const names = new Intl.Collator("en", { numeric: true });
const compare = (a, b) => {
  if (typeof a === "string") return names.compare(a, b);
  return (a ?? -1) - (b ?? -1);
};
