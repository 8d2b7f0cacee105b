"use strict";

// What the drawer says about one partition.

function partitionTitle(customerName, day) {
  return day ? `${customerName}, ${day}` : customerName;
}

/** The drawer's content: what it means first, then why, then the records. */
function partitionContent(partition) {
  return [
    statusLine(partition),
    staleness(partition),
    factList(partition),
    records(partition),
    attemptList(partition),
    runList(partition.runs),
  ].filter(Boolean);
}

/** For a file that holds the matrix only. */
function cellContent(kind, assetKey) {
  return [
    element("p", { class: "verdict" }, sample(kind.look), element("strong", { text: sentence(kind.words) })),
    element("p", { class: "quiet", text: assetKey }),
    element("p", {
      text: "This file holds no more about it. Attempts, runs and records are on the served page.",
    }),
  ];
}

function sample(look) {
  return element("span", { class: `cell sample ${look}`, "aria-hidden": "true" });
}

function statusLine(partition) {
  const kind = cellKind({
    display: partition.display,
    stale_reason: partition.stale_reason_code,
    last_attempt: partition.last_attempt?.outcome,
    is_withdrawn: isWithdrawn(partition),
  });
  return element("div", { class: "verdict-block" },
    element("p", { class: "verdict" }, sample(kind.look), element("strong", { text: verdictWords(partition) })),
    element("p", { class: "quiet" }, element("code", { text: partition.asset_key }), " ",
      element("code", { text: partition.partition_key })));
}

function isWithdrawn({ flags = [] }) {
  return flags.includes("withdrawn");
}

function verdictWords(partition) {
  const { display, stale_reason_code: reason, last_attempt: attempt } = partition;
  const attemptWords = { FAILED: "; the last attempt failed", CANCELLED: "; the last attempt was cancelled" };
  const ending = attemptWords[attempt?.outcome] ?? "";
  // Whatever the status: there is nothing to be seen of it.
  if (isWithdrawn(partition)) return `Its rows were withdrawn from readers${reason ? ", and are stale" : ""}${ending}`;
  switch (display) {
    case "Materialized":
      return `Shown data is good and up to date${ending}`;
    case "Stale":
      return `Shown data is good but stale${ending}`;
    case "MaterializedButLastAttemptFailed":
      return `Shown data is good${reason ? " but stale" : ""}; the last attempt failed`;
    default:
      return `${reason === "FRESHNESS_POLICY" ? "No data, and its deadline has passed" : "No data yet"}${ending}`;
  }
}

function staleness({ display, staleness: reasons, stale_since: since }) {
  if (!reasons.length) return null;
  return section(display === "NeverMaterialized" ? "Why overdue" : "Why stale",
    since && reasons.length > 1 ? element("p", { class: "quiet" }, "Since ", timeElement(since)) : null,
    element("ul", { class: "reasons" }, ...reasons.map((reason) => element("li", {},
      element("strong", { text: sentence(reasonWords(reason.reason_code)) }),
      " since ", timeElement(reason.since),
      element("p", { text: sentence(reason.explanation) })))));
}

function factList(partition) {
  const { last_materialization: materialization, last_attempt: attempt, freshness, next_retry: retry } = partition;
  const facts = [
    ["Last materialization", materialization && [timeElement(materialization.at), runId(materialization.run_id)]],
    ["Last attempt", attempt && [outcomeBadge(attempt.outcome), timeElement(attempt.at), runId(attempt.run_id)]],
    ["Next retry", retry && [...(retry.at ? [timeElement(retry.at)] : []), element("span", { class: "quiet", text: retry.why })]],
    ["Due", freshness && [timeElement(freshness.due_at)]],
    ["Deadline", freshness && [timeElement(freshness.deadline)]],
    ["Code", codeVersions(materialization?.code_version, partition.current_code_version)],
  ];
  return section("Last and next", element("dl", { class: "facts" }, ...facts.flatMap(([name, values]) => [
    element("dt", { text: name }),
    element("dd", {}, ...(values || [element("span", { class: "quiet", text: "none" })])),
  ])));
}

function codeVersions(made, current) {
  if (!made || made === current) return [element("code", { text: current ?? "unknown" })];
  return ["made by ", element("code", { text: made }), " and now ", element("code", { text: current })];
}

/** Authority, pointer and load record, which should name the same run. */
function records({ state, pointer, load_record: load }) {
  const rows = [
    ["Run", state && runId(state.current_run_id), pointer && runId(pointer.run_id), load && runId(load.run_id)],
    ["Status", state?.status, pointer?.status, null],
    ["Version", state?.version, pointer?.state_version, load?.pointer_version],
    ["Records", number(state?.record_count), number(pointer?.record_count), number(load?.record_count)],
    ["Schema", state?.schema_version, null, null],
    ["Attempts", state?.attempt_count, null, null],
    ["When", time(state?.updated_at), time(pointer?.loaded_at), time(load?.loaded_at)],
  ];
  const heads = ["", "Authority", "Pointer", "Load record"].map((text) => element("th", { scope: "col", text }));
  const lines = rows.map(([name, ...values]) => element("tr", {}, element("th", { scope: "row", text: name }),
    ...values.map((value) => element("td", {}, value ?? element("span", { class: "quiet", text: "–" })))));
  return section("Records",
    element("p", { class: "quiet", text: agreement(state?.current_run_id, pointer?.run_id, load?.run_id) }),
    element("div", { class: "wide" }, element("table", { class: "records" },
      element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...lines))),
    state?.error_message ? element("p", { class: "error-text", text: state.error_message }) : null);
}

function agreement(...runs) {
  const named = runs.filter(Boolean);
  if (!named.length) return "None of the three names a run.";
  if (new Set(named).size > 1) return "They name different runs.";
  return named.length === runs.length ? "All three name the same run." : "Not all of the three name a run.";
}

function attemptList({ attempts, runs }) {
  if (!attempts.length) return section("Attempts", element("p", { class: "quiet", text: "None yet." }));
  const links = new Map(runs.map(({ run_id: id, url }) => [id, url]));
  const items = attempts.map((attempt) => element("li", {},
    element("p", { class: "attempt-line" }, outcomeBadge(attempt.outcome),
      element("span", { text: attempt.kind }), timeElement(attempt.at)),
    attempt.error_message ? element("p", { class: "error-text" },
      attempt.error_class ? element("strong", { text: `${attempt.error_class}: ` }) : null, attempt.error_message) : null,
    element("p", { class: "quiet" }, attempt.run_id ? runId(attempt.run_id) : null, " ",
      attempt.dagster_run_id ? dagsterRun(attempt.dagster_run_id, links.get(attempt.dagster_run_id)) : null)));
  return section("Attempts, newest first", element("ol", { class: "attempts" }, ...items));
}

function runList(runs) {
  if (!runs.length) return null;
  return section("Dagster runs", element("ul", { class: "runs" }, ...runs.map((run) => element("li", {},
    outcomeBadge(run.status), dagsterRun(run.run_id, run.url), " ",
    run.started_at ? timeElement(run.started_at) : element("span", { class: "quiet", text: "not started" }),
    run.ended_at ? element("span", { class: "quiet", text: duration(run.started_at, run.ended_at) }) : null))));
}

function dagsterRun(id, url) {
  const name = element("code", { text: id.slice(0, 8), title: id });
  if (!isWebAddress(url)) return element("span", {}, "Dagster run ", name);
  return element("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, "Dagster run ", name);
}

// An address that is a script would run on a click.
function isWebAddress(text) {
  return typeof text === "string" && URL.canParse(text) && ["http:", "https:"].includes(new URL(text).protocol);
}

function section(title, ...children) {
  return element("section", {}, element("h3", { text: title }), ...children);
}

function outcomeBadge(outcome) {
  const looks = {
    failed: "is-bad", failure: "is-bad", rejected: "is-bad", demoted: "is-bad",
    succeeded: "is-good", success: "is-good", accepted: "is-good", sealed: "is-good",
  };
  const word = String(outcome).toLowerCase();
  return element("span", { class: `badge ${looks[word] ?? ""}`, text: word });
}

function runId(id) {
  return id ? element("code", { class: "run-id", text: id }) : null;
}

function number(value) {
  return value === null || value === undefined ? null : NUMBERS.format(value);
}

function time(value) {
  return value ? timeElement(value) : null;
}

function duration(from, to) {
  const seconds = Math.round((Date.parse(to) - Date.parse(from)) / 1000);
  if (!(seconds >= 0)) return "";
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

function sentence(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
