"use strict";

// What stands around the matrix: whose statuses these are, the queries, the counts and the legend.

const KINDS = [["table", "Tables"], ["raw", "Raw extractions"], ["mart", "Marts"]];

class OverviewPanel {
  /** `changed()` when the reader chose other statuses. */
  constructor({ changed }) {
    this.tiles = new Map(STATUSES.map((status) => [status.value, this.makeTile(status, changed)]));
    byId("legend").append(...LEGEND.map(({ look, title, meaning }) => element("li", {},
      sample(look), element("span", {}, element("strong", { text: title }), ` ${meaning}`))));
  }

  makeTile({ value, look, title, meaning }, changed) {
    const tile = {
      box: element("input", { type: "checkbox", name: "status", value }),
      count: element("strong", { class: "count", text: "–" }),
      note: element("span", { class: "note" }),
    };
    tile.box.addEventListener("change", changed);
    byId("tiles").append(element("label", { class: "tile", title: sentence(meaning) },
      tile.box, sample(look), tile.count, element("span", { class: "tile-title", text: title }), tile.note));
    return tile;
  }

  get statuses() {
    return [...this.tiles].filter(([, { box }]) => box.checked).map(([value]) => value);
  }

  showTop({ tenant_id: tenant, workspace_id: workspace, source, generated_at: at, dagster_url: url }) {
    byId("scope").replaceChildren(`${source}, ${tenant}/${workspace}, as of `, timeElement(at));
    const link = byId("dagster");
    link.hidden = !isWebAddress(url);
    if (!link.hidden) link.href = url;
  }

  /** Offers the assets that have days, and returns the chosen one, or the first if there is none such. */
  showAssets(assets, chosen) {
    const ordered = KINDS.flatMap(([kind]) => assets.filter((asset) => asset.has_days && asset.kind === kind));
    const keys = ordered.map(({ asset_key: key }) => key);
    const select = byId("asset");
    // Only when they differ: filling it again would shut it in the reader's face.
    if (select.dataset.keys !== keys.join("\n")) {
      select.dataset.keys = keys.join("\n");
      select.replaceChildren(...KINDS.map(([kind, label]) => assetGroup(label, ordered, kind)).filter(Boolean));
    }
    select.value = keys.includes(chosen) ? chosen : (keys[0] ?? "");
    return select.value;
  }

  /** `inSight` counts the days of the matrix, where there is one. */
  showCounts({ counts = {}, flags = {}, stale_reasons: reasons = {} }, inSight, statuses) {
    for (const [value, tile] of this.tiles) {
      tile.count.textContent = NUMBERS.format(counts[value] ?? 0);
      tile.note.textContent = inSight ? `${NUMBERS.format(inSight.get(value) ?? 0)} in these days` : "";
      tile.box.checked = statuses.includes(value);
    }
    byId("flags").textContent = flagWords(flags, reasons);
  }

  /** Assets that have one partition a customer. */
  showWhole(assets) {
    const whole = assets.filter(({ has_days: hasDays }) => !hasDays);
    byId("whole").hidden = !whole.length;
    byId("whole-list").replaceChildren(...whole.map(({ title, asset_key: key, counts }) => element("li", {},
      element("strong", { text: title, title: key }),
      ...STATUSES.filter(({ value }) => counts[value]).map(({ value, look, title: status }) => element("span", {},
        sample(look), `${NUMBERS.format(counts[value])} ${status.toLowerCase()}`)))));
  }
}

/** What is true of partitions besides their status, each wherever it is true. */
function flagWords(flags, reasons) {
  const words = [
    [flags.stale, `stale${whyWords(reasons)}`],
    [flags.last_attempt_failed, "with a failed last attempt"],
    [flags.last_attempt_cancelled, "with a cancelled last attempt"],
    [flags.overdue, "overdue"],
    [flags.withdrawn, "withdrawn from readers"],
  ];
  const told = words.filter(([count]) => count).map(([count, what]) => `${NUMBERS.format(count)} ${what}`);
  return told.length ? `Of all days, whatever their status: ${told.join(", ")}.` : "";
}

function whyWords(reasons) {
  const why = Object.entries(reasons).filter(([, count]) => count)
    .map(([code, count]) => `${NUMBERS.format(count)} ${reasonWords(code)}`);
  return why.length ? ` (${why.join(", ")})` : "";
}

function assetGroup(label, assets, kind) {
  const options = assets.filter((asset) => asset.kind === kind)
    .map(({ asset_key: key, title }) => element("option", { value: key, text: title }));
  return options.length ? element("optgroup", { label }, ...options) : null;
}
