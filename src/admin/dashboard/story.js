// A decision as a story: the rungs in order, what each did, and who was considered.

import {
  REASONS,
  byId,
  clock,
  counted,
  el,
  millis,
  number,
  percent,
  reasonClass,
  swatch,
} from "./dom.js";

const MARKS = { decided: "▶", passed: "✓", closed: "✕", off: "○", not_reached: "·" };
const WORDS = {
  decided: "decided",
  passed: "passed",
  closed: "closed",
  off: "off",
  not_reached: "not reached",
};

const open = (title, ...body) => {
  byId("story-title").replaceChildren(...title);
  byId("story-body").replaceChildren(...body.flat());
  byId("story").showModal();
  byId("story-title").focus();
};

export const tellRecord = (record, model) => {
  const { estimated, reported, matched, cached } = record.prompt_tokens;
  open(
    [
      swatch(reasonClass(record.decision)),
      record.decision
        ? `${record.decision} → ${record.worker}`
        : `not routed: ${record.error ?? record.outcome}`,
    ],
    el("p", {}, record.decision ? sentence(record.decision) : "The request reached no worker."),
    facts([
      ["Request", record.request_id],
      ["Ended", clock(record.time * 1000)],
      ["Model", record.model],
      ["Client", record.client],
      ["Path", record.path],
      [
        "Outcome",
        `${record.outcome}, status ${record.status || "none"}${record.error ? `, ${record.error}` : ""}`,
      ],
      ["Prompt", `${number(estimated)} tokens estimated, ${number(reported)} reported`],
      ["Held", `${number(matched)} tokens believed, ${number(cached)} reported`],
      ["Answer", `${number(record.completion_tokens)} tokens`],
      ["TTFT", millis(record.ttft_ms)],
      ["Total", millis(record.total_ms)],
      ["Attempts", String(record.attempts)],
      ...(record.queued_ms === undefined ? [] : [["Waited at the edge", millis(record.queued_ms)]]),
    ]),
    record.route
      ? el(
          "p",
          {},
          `${record.route.event}, ${record.route.mode}: `,
          el("code", {}, record.route.signature),
        )
      : [],
    record.rungs ? rungs(rungsOf(record, model)) : [],
    record.rungs ? considered(record.rungs.candidates) : [],
    record.rungs?.cost ? cost(record.rungs.cost, record) : [],
  );
};

const sentence = (reason) => `Sent ${REASONS[reason] ?? reason}.`;

const facts = (pairs) =>
  el(
    "dl",
    { class: "facts" },
    pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );

const rungs = (list) =>
  el(
    "ol",
    { class: "rungs" },
    list.map(({ rung, result, why }) =>
      el(
        "li",
        { class: result },
        el("span", { class: "mark", "aria-hidden": "true" }, MARKS[result] ?? "·"),
        el("b", {}, rung),
        el("em", {}, WORDS[result] ?? result),
        el("span", {}, why),
      ),
    ),
  );

// The ladder of one that ended, by what its trace kept; limit and floor are those of now.
const rungsOf = (record, model) => {
  const { rungs: seen, decision } = record;
  if (seen.cost) return costRungs(record);
  if (!seen.cache_decision) return [{ rung: "policy", result: "decided", why: sentence(decision) }];
  const all = seen.candidates.length;
  const limit = model?.worker_queue_limit ?? null;
  const floor = model?.saturation_queue_floor ?? null;
  const isOwner = decision === "cache_candidate";
  const isPin = decision === "saturation_pin";
  const left = seen.admission_evaluated - seen.admission_rejected;
  const best = seen.candidates[0];
  return [
    all === 0
      ? { rung: "candidates", result: "closed", why: "nobody held enough of the prefix" }
      : {
          rung: "candidates",
          result: "passed",
          why: `${counted(all, "owner")}, ${best.worker} with ${counted(best.blocks, "block")}`,
        },
    gate(seen, all, limit),
    readmission(seen, all, floor),
    seen.admission_evaluated === 0
      ? { rung: "admission", result: "not_reached", why: "no owner left to look at" }
      : {
          rung: "admission",
          result: left === 0 ? "closed" : "passed",
          why: `${seen.admission_rejected} of ${counted(seen.admission_evaluated, "owner")} without room`,
        },
    isOwner
      ? {
          rung: "tournament",
          result: "decided",
          why: `${record.worker} of ${left}, by what is left to compute, then ${measured(seen.pressure_source)}${guarded(seen)}`,
        }
      : { rung: "tournament", result: "not_reached", why: "no owner left to compete" },
    pin(seen, isOwner, isPin, floor, record),
    isOwner || isPin
      ? { rung: "fallback", result: "not_reached", why: "decided above" }
      : {
          rung: "fallback",
          result: "decided",
          why: `${sentence(decision)} ${record.worker} had the least work of the best tier by room and queue`,
        },
  ];
};

const MEASURES = {
  estimated_prefill_queue_ms: "estimated prefill time of its queue",
  native_queue_tokens: "uncached tokens in its queue",
  reported_queue: "reported queue",
  router_local: "what this edge has sent there",
};

const measured = (source) => MEASURES[source] ?? source;

const guarded = ({ guard_compared: pairs, guard_overrides: overrides }) =>
  pairs === 0 ? "" : `; the pressure guard changed ${overrides} of ${counted(pairs, "pair")}`;

const gate = (seen, all, limit) => {
  if (seen.gate_inert)
    return { rung: "gate", result: "passed", why: "inert: no worker had a fresh queue" };
  if (limit === null && seen.gate_rejected === 0)
    return { rung: "gate", result: "off", why: "worker_queue_limit is not set" };
  if (all === 0) return { rung: "gate", result: "not_reached", why: "no owner to look at" };
  const at = limit === null ? "the limit" : `the limit (now ${limit})`;
  if (seen.gate_rejected === 0)
    return { rung: "gate", result: "passed", why: `no owner had a queue known to be at ${at}` };
  return {
    rung: "gate",
    result: seen.gate_rejected === all ? "closed" : "passed",
    why: `${seen.gate_rejected} of ${counted(all, "owner")} at ${at} or over it`,
  };
};

const readmission = (seen, all, floor) => {
  if (seen.queue_gate_fell_back)
    return {
      rung: "readmission",
      result: "passed",
      why: "everybody queued and no floor was set: the owners were let in again",
    };
  if (all === 0 || seen.gate_rejected < all)
    return {
      rung: "readmission",
      result: "not_reached",
      why: "only if the gate takes every owner",
    };
  if (floor !== null)
    return {
      rung: "readmission",
      result: "off",
      why: "saturation_queue_floor is set: the pin decides",
    };
  return { rung: "readmission", result: "closed", why: "not the whole fleet was known to queue" };
};

const pin = (seen, isOwner, isPin, floor, record) => {
  if (isPin)
    return {
      rung: "saturation_pin",
      result: "decided",
      why: `nobody was known to be below the floor${floor === null ? "" : ` (now ${floor})`}: back to ${record.worker}, first by ${measured(seen.pin_pressure_source)}`,
    };
  if (isOwner) return { rung: "saturation_pin", result: "not_reached", why: "decided above" };
  if (floor === null)
    return { rung: "saturation_pin", result: "off", why: "saturation_queue_floor is not set" };
  if (seen.gate_rejected === 0)
    return { rung: "saturation_pin", result: "not_reached", why: "the gate took no owner" };
  return {
    rung: "saturation_pin",
    result: "closed",
    why: `somebody was below the floor (now ${floor}), or no gated owner could take it`,
  };
};

const costRungs = (record) => [
  {
    rung: "cost",
    result: "decided",
    why: `${sentence(record.decision)} ${record.worker} had the least of wait and price together`,
  },
];

const considered = (candidates) =>
  candidates.length === 0
    ? []
    : table(
        "Who was considered, best first",
        ["Worker", "#Blocks", "#To compute", "#Queue", "What became of it"],
        candidates.map((row) => [
          row.worker,
          number(row.blocks),
          number(row.uncached_tokens),
          row.queue === null ? "unknown" : number(row.queue),
          row.matched_tokens === undefined
            ? row.verdict.replace("_", " ")
            : `${row.verdict.replace("_", " ")}: ${row.why}`,
        ]),
        candidates.map((row) => (row.verdict === "chosen" ? "won" : "")),
      );

const cost = (of, record) =>
  facts([
    ["Wait: ahead there", counted(of.line, "token")],
    ["Price for the others", counted(of.price, "token")],
    ["Score", number(of.score)],
    ["Mean line", counted(of.mean_line, "token")],
    ["Beyond the fewest anywhere", counted(of.diverted_tokens, "token")],
    [
      "To compute",
      counted((record.prompt_tokens.estimated ?? 0) - (record.prompt_tokens.matched ?? 0), "token"),
    ],
  ]);

// A head that begins with # is of a column of numbers.
const table = (title, heads, rows, kinds) => {
  const isNumber = heads.map((head) => head.startsWith("#"));
  const kind = (at) => isNumber[at] && "number";
  return el(
    "div",
    { class: "scroll", role: "region", tabindex: "0", "aria-label": title },
    el(
      "table",
      {},
      el("caption", {}, title),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((head, at) =>
            el("th", { scope: "col", class: kind(at) }, head.replace("#", "")),
          ),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((cells, row) =>
          el(
            "tr",
            { class: kinds[row] },
            cells.map((cell, at) =>
              el(at === 0 ? "th" : "td", { scope: at === 0 && "row", class: kind(at) }, cell),
            ),
          ),
        ),
      ),
    ),
  );
};

// What /v1/explain says.
export const tellExplanation = (said) => {
  const winner = said.winner;
  open(
    winner
      ? [swatch(reasonClass(winner.reason)), `${winner.reason} → ${winner.worker}`]
      : [`nowhere: ${said.refusal}`],
    el("p", {}, winner ? `${winner.why}.` : "Nobody can take it."),
    facts([
      ["Model", said.model],
      ["Policy", said.policy],
      [
        "Prompt",
        said.input_tokens === null
          ? "none"
          : `${counted(said.input_tokens, "token")}${said.blocks === null ? "" : ` in ${counted(said.blocks, "block")}`}`,
      ],
      ...(winner ? [["To compute", counted(winner.uncached_tokens, "token")]] : []),
      ...said.rules.map(({ name, value }) => [name, value === null ? "unset" : String(value)]),
    ]),
    rungs(said.rungs),
    considered(said.candidates),
    costs(said, winner),
    routes(said.routes ?? []),
    whatIf(said),
  );
};

const costs = (said, winner) =>
  said.costs.length === 0
    ? []
    : table(
        "What each worker would cost, tokens",
        ["Worker", "#Ahead", "#To compute", "#Price", "#Score", "What became of it"],
        [...said.costs]
          .sort(
            (a, b) =>
              Number(b.worker === winner?.worker) - Number(a.worker === winner?.worker) ||
              a.score - b.score,
          )
          .map((row) => [
            row.worker,
            number(row.line),
            number(row.uncached_tokens),
            number(row.price),
            number(row.score),
            row.why,
          ]),
        said.costs.map((_, at) => (at === 0 ? "won" : "")),
      );

const routes = (list) =>
  list.length === 0
    ? []
    : table(
        "Routes",
        ["Route", "#tok/s", "#Prior", "#Share", "Status"],
        list.map((row) => [
          row.signature,
          row.tps === null ? "–" : row.tps.toFixed(1),
          row.prior_tps.toFixed(1),
          percent(row.expected_share),
          row.status,
        ]),
        list.map((row) => (row.chosen ? "won" : "")),
      );

const whatIf = (said) =>
  said.what_if.length === 0
    ? []
    : table(
        "What would happen otherwise",
        ["If", "Worker", "Reason", "#To compute"],
        said.what_if.map((row) => [
          row.change,
          row.worker ?? "nowhere",
          row.reason ?? "–",
          number(row.uncached_tokens),
        ]),
        said.what_if.map((row) => (row.worker === said.winner?.worker ? "" : "differs")),
      );
