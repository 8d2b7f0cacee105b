"use strict";

// What can be told from a matrix without showing it.

function kindsOf(matrix) {
  return new Map(Object.entries(matrix.legend).map(([character, entry]) => [character, cellKind(entry)]));
}

function displayCounts(matrix, kinds) {
  const counts = new Map();
  for (const { cells } of matrix.rows) {
    for (const character of cells) {
      const display = kinds.get(character)?.display;
      counts.set(display, (counts.get(display) ?? 0) + 1);
    }
  }
  return counts;
}

/** The partitions that stand otherwise than before, as customer|day. Two documents' letters need not mean the same. */
function changedCells(before, after) {
  const changed = new Set();
  if (before.matrix.asset_key !== after.matrix.asset_key) return changed;
  const shift = dayNumber(after.matrix.from) - dayNumber(before.matrix.from);
  const days = daysBetween(after.matrix.from, after.matrix.to);
  const rowsBefore = new Map(before.matrix.rows.map((row) => [row.customer_id, row.cells]));
  for (const { customer_id: id, cells } of after.matrix.rows) {
    const cellsBefore = rowsBefore.get(id) ?? "";
    for (let column = 0; column < cells.length; column += 1) {
      const words = after.kinds.get(cells[column])?.words;
      if (words !== before.kinds.get(cellsBefore[column + shift])?.words) changed.add(`${id}|${days[column]}`);
    }
  }
  return changed;
}

function matchesText({ customer_id: id, name }, wanted) {
  const text = folded(wanted);
  const digits = text.replaceAll("-", "");
  return folded(name).includes(text) || (/^\d+$/.test(digits) && id.includes(digits));
}

/** Without capitals and accents. */
function folded(text) {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
}

function hasStatus({ cells }, kinds, chosen) {
  if (!chosen.size) return true;
  for (const character of cells) {
    if (chosen.has(kinds.get(character)?.display)) return true;
  }
  return false;
}
