"use strict";

// Where the documents come from: the server of this page, or the page itself. Both have the same three methods.

function openSource() {
  const embedded = document.getElementById("embedded");
  return embedded ? embeddedSource(JSON.parse(embedded.textContent)) : servedSource();
}

function servedSource() {
  return {
    live: true,
    overview: (signal) => fetchDocument("api/overview", {}, signal),
    matrix: (asset, from, to, signal) => fetchDocument("api/matrix", { asset, from, to }, signal),
    partition: (asset, partition, signal) => fetchDocument("api/partition", { asset, partition }, signal),
  };
}

async function fetchDocument(path, parameters, signal) {
  const given = Object.entries(parameters).filter(([, value]) => value);
  const query = given.length ? `?${new URLSearchParams(given)}` : "";
  let answer;
  try {
    answer = await fetch(path + query, { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server of this page does not answer; is it still running?", { cause: error });
  }
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new Error(body?.error ?? `The server answered ${answer.status}.`);
  if (body === null) throw new Error("The server's answer was cut off.");
  return body;
}

/** Only what is inside can be chosen: a query without its days would lead nowhere. */
function embeddedSource({ overview, matrices, partitions }) {
  const assets = overview.assets.filter(({ asset_key: key, has_days: hasDays }) => !hasDays || key in matrices);
  return {
    live: false,
    overview: async () => ({ ...overview, assets }),
    matrix: async (asset, from, to) => partOfMatrix(matrices[asset], from, to),
    partition: async (asset, partition) => partitions[asset]?.[partition] ?? null,
  };
}

/** The days of a matrix between two days, as the server would answer. */
function partOfMatrix(matrix, from, to) {
  const first = from && from > matrix.from ? from : matrix.from;
  const last = to && to < matrix.to ? to : matrix.to;
  const start = dayNumber(first) - dayNumber(matrix.from);
  const end = Math.max(start, dayNumber(last) - dayNumber(matrix.from) + 1);
  const rows = matrix.rows.map((row) => ({ ...row, cells: row.cells.slice(start, end) }));
  return { ...matrix, from: first, to: last, rows };
}
