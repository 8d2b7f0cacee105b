"use strict";

// The view in the address, after the #: a link shows others what its sender sees, and a file without a server can have
// one too. What is after the # never reaches a server's log.

const NO_FILTERS = Object.freeze({ customer: "", from: "", to: "", statuses: [] });

function readView() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const known = new Set(STATUSES.map(({ value }) => value));
  return {
    asset: fields.get("asset") ?? "",
    customer: fields.get("customer") ?? "",
    from: readDay(fields.get("from")),
    to: readDay(fields.get("to")),
    statuses: (fields.get("status") ?? "").split(",").filter((value) => known.has(value)),
    partition: fields.get("partition") ?? "",
  };
}

function readDay(text) {
  return text && /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(dayNumber(text)) ? text : "";
}

function writeView({ asset, customer, from, to, statuses, partition }) {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries({ asset, customer, from, to, status: statuses.join(","), partition })) {
    if (value) fields.set(name, value);
  }
  // Replaced, not added: otherwise every letter typed into the search would be a step back.
  history.replaceState(null, "", `#${fields}`);
}
