"use strict";

// What statuses, reasons and times are called, and how text becomes elements. Text from the data goes through
// `element` and `textContent` only: an advertiser chooses the name of an account, and may choose a tag.

// In the order of the tiles and of the legend.
const STATUSES = [
  {
    value: "Materialized",
    look: "s-materialized",
    title: "Materialized",
    meaning: "the data is there and up to date",
  },
  {
    value: "Stale",
    look: "s-stale",
    title: "Stale",
    meaning: "the data is there and good, but should be renewed",
  },
  {
    value: "MaterializedButLastAttemptFailed",
    look: "s-failed",
    title: "Last attempt failed",
    meaning: "the data is there and good; renewing it failed",
  },
  {
    value: "NeverMaterialized",
    look: "s-never",
    title: "Never materialized",
    meaning: "no data yet",
  },
];

const REASONS = {
  FRESHNESS_POLICY: "not renewed in time",
  UPSTREAM_CHANGED: "upstream changed",
  CODE_CHANGED: "code changed",
};

const LEGEND = [
  ...STATUSES.map(({ look, title, meaning }) => ({ look, title, meaning })),
  { look: "s-never s-overdue", title: "Overdue", meaning: "no data yet, and its deadline has passed" },
  { look: "s-failed m-stale", title: "Upper corner", meaning: "stale as well" },
  { look: "s-stale a-failed", title: "Lower corner", meaning: "the last attempt failed" },
  { look: "s-materialized a-cancelled", title: "Bar below", meaning: "the last attempt was cancelled" },
  { look: "s-materialized w-withdrawn", title: "Bar at the side", meaning: "its rows were withdrawn from readers" },
];

// A day that is not open yet, or that the query does not have.
const NO_PARTITION = { display: null, look: "s-none", words: "no partition" };

function reasonWords(code) {
  return REASONS[code] ?? String(code);
}

/** What a cell of the matrix looks like and says, from the matrix's legend. */
function cellKind({ display, stale_reason: reason, last_attempt: attempt, is_withdrawn: withdrawn }) {
  const never = display === "NeverMaterialized";
  const overdue = never && reason === "FRESHNESS_POLICY";
  const looks = [STATUSES.find(({ value }) => value === display)?.look ?? "s-never"];
  const words = [statusWords(display, reason, overdue)];
  if (overdue) looks.push("s-overdue");
  if (reason && !never && display !== "Stale") {
    looks.push("m-stale");
    words.push(`stale: ${reasonWords(reason)}`);
  }
  if (attempt === "FAILED" && display !== "MaterializedButLastAttemptFailed") {
    looks.push("a-failed");
    words.push("last attempt failed");
  }
  if (attempt === "CANCELLED") {
    looks.push("a-cancelled");
    words.push("last attempt cancelled");
  }
  if (withdrawn) {
    looks.push("w-withdrawn");
    words.push("withdrawn");
  }
  return { display, look: looks.join(" "), words: words.join(", ") };
}

function statusWords(display, reason, overdue) {
  switch (display) {
    case "Materialized":
      return "materialized";
    case "Stale":
      return reason ? `stale: ${reasonWords(reason)}` : "stale";
    case "MaterializedButLastAttemptFailed":
      return "materialized, last attempt failed";
    default:
      return overdue ? "never materialized, overdue" : "never materialized";
  }
}

const NUMBERS = new Intl.NumberFormat();
const TIMES = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short",
});
const MONTHS = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "long", timeZone: "UTC" });
const WEEKDAYS = new Intl.DateTimeFormat(undefined, { weekday: "long", timeZone: "UTC" });

function counted(number, one, many = `${one}s`) {
  return `${NUMBERS.format(number)} ${number === 1 ? one : many}`;
}

/** A moment in the reader's zone; in UTC when pointed at. */
function timeElement(timestamp) {
  const moment = new Date(timestamp);
  if (Number.isNaN(moment.getTime())) return element("span", { text: timestamp });
  const utc = moment.toISOString();
  return element("time", {
    datetime: utc,
    title: `${utc.slice(0, 10)} ${utc.slice(11, 19)} UTC`,
    text: TIMES.format(moment),
  });
}

// A day is a date in the account's calendar, not a moment: counting goes in UTC, where every day has 24 hours.
const DAY_MILLISECONDS = 86_400_000;

function dayNumber(day) {
  return Math.round(Date.parse(`${day}T00:00:00Z`) / DAY_MILLISECONDS);
}

function dayOfNumber(number) {
  return new Date(number * DAY_MILLISECONDS).toISOString().slice(0, 10);
}

function daysBetween(first, last) {
  const start = dayNumber(first);
  return Array.from({ length: Math.max(0, dayNumber(last) - start + 1) }, (_, index) => dayOfNumber(start + index));
}

/** `attributes.text` becomes text, and everything else an attribute; children that are null are left out. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function actionButton(label, act) {
  const button = element("button", { type: "button", text: label });
  button.addEventListener("click", act);
  return button;
}

function byId(id) {
  return document.getElementById(id);
}
