"use strict";

// Brings the parts together: the address says what to show, the source has it, the grid and the drawer show it.

const TYPING_MILLISECONDS = 120;
const RECONNECT_MILLISECONDS = 5_000;
const CHANGED_MILLISECONDS = 4_000;
const KINDS = [["table", "Tables"], ["raw", "Raw extractions"], ["mart", "Marts"]];
const LIVE_WORDS = {
  loading: "Loading",
  live: "Live",
  reconnecting: "Reconnecting",
  trouble: "No news: the database does not answer",
  file: "Saved file",
};

function byId(id) {
  return document.getElementById(id);
}

class StatusPage {
  constructor(source) {
    this.source = source;
    this.view = readView();
    this.overview = null;
    this.matrix = null;
    this.knownVersion = null;
    this.turn = 0;
    this.request = new AbortController();
    this.grid = new MatrixGrid({
      open: (row, day) => this.openPartition(`${row.customer_id}|${day}`),
      point: (words) => { byId("readout").textContent = words; },
    });
    this.tiles = new Map();
    this.buildLegend();
    this.buildTiles();
    this.bindFilters();
    this.bindDrawer();
  }

  async start() {
    await this.load();
    if (this.source.live) this.listen();
    else this.setLive("file");
  }

  // Loading

  /** Everything from the beginning; after an error, a button calls it again. */
  async load() {
    this.hideProblem();
    try {
      this.setOverview(await this.source.overview());
    } catch (error) {
      this.showProblem(error, () => this.load());
      return;
    }
    await this.loadMatrix({ newest: true });
    if (this.view.partition) this.openPartition(this.view.partition);
  }

  setOverview(overview) {
    this.overview = overview;
    this.knownVersion ??= overview.version;
    this.fillTop();
    this.fillAssets();
    this.fillTiles();
    this.fillWhole();
  }

  async loadMatrix({ newest }) {
    const turn = this.nextTurn();
    const { asset, from, to } = this.view;
    if (!asset) {
      this.showEmpty("The catalog has no query with days yet.", "Add one to google_apis.yaml, then reload this page.");
      return;
    }
    if (from && to && from > to) {
      this.showEmpty(`The first day, ${from}, is after the last day, ${to}.`, "Choose an earlier first day.");
      return;
    }
    byId("scroller").setAttribute("aria-busy", "true");
    try {
      const matrix = await this.source.matrix(asset, from, to, this.request.signal);
      if (turn !== this.turn) return;
      this.hideProblem();
      this.setMatrix(matrix);
      this.showRows({ newest });
      // For whoever asks the Performance API how long the matrix took.
      requestAnimationFrame(() => performance.mark("matrix-shown"));
    } catch (error) {
      if (turn === this.turn) this.showProblem(error, () => this.loadMatrix({ newest }));
    } finally {
      if (turn === this.turn) byId("scroller").removeAttribute("aria-busy");
    }
  }

  /** What was asked before is of no use any more. */
  nextTurn() {
    this.request.abort();
    this.request = new AbortController();
    this.turn += 1;
    return this.turn;
  }

  setMatrix(matrix) {
    this.matrix = matrix;
    this.kinds = kindsOf(matrix);
    byId("from").value = this.view.from || matrix.from;
    byId("to").value = this.view.to || matrix.to;
    this.fillPresets();
    this.fillTiles();
  }

  // Live

  listen() {
    const stream = new EventSource("/api/live");
    stream.addEventListener("open", () => this.setLive("live"));
    stream.addEventListener("message", ({ data }) => this.onVersion(JSON.parse(data).version));
    stream.addEventListener("trouble", ({ data }) => this.setLive("trouble", JSON.parse(data).error));
    stream.addEventListener("error", () => {
      this.setLive("reconnecting");
      // A browser tries again by itself after a broken connection, but not after an answer that is no stream.
      if (stream.readyState === EventSource.CLOSED) setTimeout(() => this.listen(), RECONNECT_MILLISECONDS);
    });
  }

  onVersion(version) {
    this.setLive("live");
    if (version === this.knownVersion) return;
    this.knownVersion = version;
    this.refresh();
  }

  /** Once more after the present one if news comes meanwhile, not many times at once. */
  async refresh() {
    this.refreshWanted = true;
    if (this.refreshing) return;
    this.refreshing = true;
    while (this.refreshWanted) {
      this.refreshWanted = false;
      await this.refreshOnce();
    }
    this.refreshing = false;
  }

  async refreshOnce() {
    if (!this.overview) return this.load();
    if (!this.matrix) return this.loadMatrix({ newest: true });
    const { turn, view } = this;
    try {
      const [overview, matrix] = await Promise.all([
        this.source.overview(),
        this.source.matrix(view.asset, view.from, view.to, this.request.signal),
      ]);
      this.setOverview(overview);
      if (turn !== this.turn) return;
      const before = { matrix: this.matrix, kinds: this.kinds };
      this.hideProblem();
      this.setMatrix(matrix);
      this.announce(changedCells(before, { matrix, kinds: this.kinds }));
    } catch (error) {
      if (turn === this.turn) this.showProblem(error, () => this.refresh());
    }
    if (this.view.partition) await this.fillDrawer();
  }

  announce(changed) {
    this.showRows({ newest: false, changed });
    if (!changed.size) return;
    byId("news").textContent = `${counted(changed.size, "cell")} changed at ${new Date().toLocaleTimeString()}`;
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.grid.settle(), CHANGED_MILLISECONDS);
  }

  setLive(state, detail = "") {
    const chip = byId("live");
    if (chip.dataset.state === state) return;
    chip.dataset.state = state;
    chip.textContent = LIVE_WORDS[state];
    chip.title = detail;
  }

  // Showing

  fillTop() {
    const { tenant_id: tenant, workspace_id: workspace, source, generated_at: at, dagster_url: url } = this.overview;
    byId("scope").replaceChildren(`${source}, ${tenant}/${workspace}, as of `, timeElement(at));
    const link = byId("dagster");
    link.hidden = !isWebAddress(url);
    if (!link.hidden) link.href = url;
  }

  fillAssets() {
    const assets = this.overview.assets.filter(({ has_days: hasDays }) => hasDays);
    const ordered = KINDS.flatMap(([kind]) => assets.filter((asset) => asset.kind === kind));
    if (!assets.some(({ asset_key: key }) => key === this.view.asset)) this.view.asset = ordered[0]?.asset_key ?? "";
    const select = byId("asset");
    const keys = ordered.map(({ asset_key: key }) => key).join("\n");
    // Only when they differ: filling it again would shut it in the reader's face.
    if (select.dataset.keys !== keys) {
      select.dataset.keys = keys;
      select.replaceChildren(...KINDS.map(([kind, label]) => assetGroup(label, ordered, kind)).filter(Boolean));
    }
    select.value = this.view.asset;
  }

  get asset() {
    return this.overview?.assets.find(({ asset_key: key }) => key === this.view.asset) ?? null;
  }

  buildLegend() {
    byId("legend").append(...LEGEND.map(({ look, title, meaning }) => element("li", {},
      sample(look), element("span", {}, element("strong", { text: title }), ` ${meaning}`))));
  }

  buildTiles() {
    for (const { value, look, title, meaning } of STATUSES) {
      const tile = {
        box: element("input", { type: "checkbox", name: "status", value }),
        count: element("strong", { class: "count", text: "–" }),
        note: element("span", { class: "note" }),
      };
      tile.box.addEventListener("change", () => this.changeStatuses());
      this.tiles.set(value, tile);
      byId("tiles").append(element("label", { class: "tile", title: sentence(meaning) },
        tile.box, sample(look), tile.count, element("span", { class: "tile-title", text: title }), tile.note));
    }
  }

  fillTiles() {
    const { counts = {}, flags = {} } = this.asset ?? {};
    const inSight = this.matrix ? displayCounts(this.matrix, this.kinds) : null;
    for (const [value, tile] of this.tiles) {
      tile.count.textContent = NUMBERS.format(counts[value] ?? 0);
      tile.note.textContent = inSight ? `${NUMBERS.format(inSight.get(value) ?? 0)} in these days` : "";
      tile.box.checked = this.view.statuses.includes(value);
    }
    byId("flags").textContent = flagWords(flags);
  }

  /** Assets that have one partition a customer. */
  fillWhole() {
    const whole = this.overview.assets.filter(({ has_days: hasDays }) => !hasDays);
    byId("whole").hidden = !whole.length;
    byId("whole-list").replaceChildren(...whole.map(({ title, asset_key: key, counts }) => element("li", {},
      element("strong", { text: title, title: key }),
      ...STATUSES.filter(({ value }) => counts[value]).map(({ value, look, title: status }) => element("span", {},
        sample(look), `${NUMBERS.format(counts[value])} ${status.toLowerCase()}`)))));
  }

  /** The matrix through the filters. */
  showRows({ newest, changed }) {
    const { matrix, view } = this;
    const days = daysBetween(matrix.from, matrix.to);
    const chosen = new Set(view.statuses);
    const rows = matrix.rows.filter((row) => matchesText(row, view.customer) && hasStatus(row, this.kinds, chosen));
    byId("caption").textContent = this.asset?.title ?? matrix.asset_key;
    byId("shown").textContent = shownWords(rows.length, matrix.rows.length, days.length);
    document.title = `Partition status: ${this.asset?.title ?? matrix.asset_key}`;
    byId("clear").disabled = !this.isFiltered();
    if (!matrix.rows.length || !days.length) {
      this.showEmpty("No customer is registered yet.", "Run gads customers sync, or wait for its sensor.");
    } else if (!rows.length) {
      this.showEmpty("No customer matches these filters.", null, { label: "Clear filters", act: () => this.clear() });
    } else {
      byId("empty").hidden = true;
      byId("scroller").hidden = false;
    }
    this.grid.show({ rows, days, kinds: this.kinds, chosen }, { newest, changed });
  }

  showEmpty(what, advice, button = null) {
    byId("scroller").hidden = true;
    const notice = byId("empty");
    notice.replaceChildren(element("strong", { text: what }), advice ? element("p", { text: advice }) : "");
    if (button) notice.append(actionButton(button.label, button.act));
    notice.hidden = false;
  }

  showProblem(error, retry) {
    const notice = byId("problem");
    notice.replaceChildren(
      element("strong", { text: this.matrix ? "What you see may be out of date." : "The status could not be read." }),
      element("p", { text: error.message }),
      actionButton("Try again", retry),
    );
    notice.hidden = false;
  }

  hideProblem() {
    byId("problem").hidden = true;
  }

  // Filters

  bindFilters() {
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    byId("asset").addEventListener("change", ({ target }) => this.change({ asset: target.value }, { newest: true }));
    byId("from").addEventListener("change", ({ target }) => this.change({ from: target.value }, { newest: true }));
    byId("to").addEventListener("change", ({ target }) => this.change({ to: target.value }, { newest: true }));
    byId("customer").addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.changeCustomer(), TYPING_MILLISECONDS);
    });
    byId("clear").addEventListener("click", () => this.clear());
    for (const button of document.querySelectorAll("[data-days]")) {
      button.addEventListener("click", () => this.change(this.presetDays(button.dataset.days), { newest: true }));
    }
    byId("customer").value = this.view.customer;
    addEventListener("hashchange", () => this.onAddress());
    addEventListener("keydown", (event) => onSlash(event));
  }

  /** Something else is to be fetched. */
  change(part, { newest }) {
    Object.assign(this.view, part);
    writeView(this.view);
    this.fillTiles();
    return this.loadMatrix({ newest });
  }

  changeCustomer() {
    this.view.customer = byId("customer").value.trim();
    this.filter();
  }

  changeStatuses() {
    this.view.statuses = [...this.tiles].filter(([, { box }]) => box.checked).map(([value]) => value);
    this.filter();
  }

  /** Something else of what is here is to be shown. */
  filter() {
    writeView(this.view);
    if (this.matrix) this.showRows({ newest: false });
  }

  clear() {
    byId("customer").value = "";
    byId("customer").focus();
    return this.change({ ...NO_FILTERS }, { newest: true });
  }

  isFiltered() {
    const { customer, from, to, statuses } = this.view;
    return Boolean(customer || from || to || statuses.length);
  }

  presetDays(preset) {
    const { first_day: first, last_day: last } = this.asset ?? {};
    if (preset === "90" || !last) return { from: "", to: "" };
    if (preset === "all") return { from: first, to: last };
    const start = dayOfNumber(dayNumber(last) - Number(preset) + 1);
    return { from: start > first ? start : first, to: last };
  }

  fillPresets() {
    for (const button of document.querySelectorAll("[data-days]")) {
      const { from, to } = this.presetDays(button.dataset.days);
      button.setAttribute("aria-pressed", String(from === this.view.from && to === this.view.to));
    }
  }

  /** Somebody followed a link to another view of this page, or edited the address. */
  async onAddress() {
    this.view = readView();
    byId("customer").value = this.view.customer;
    if (!this.view.partition) byId("drawer").close();
    if (!this.overview) return;
    this.fillAssets();
    this.fillTiles();
    await this.loadMatrix({ newest: true });
    if (this.view.partition) this.openPartition(this.view.partition);
  }

  // The drawer

  bindDrawer() {
    const drawer = byId("drawer");
    byId("drawer-close").addEventListener("click", () => drawer.close());
    drawer.addEventListener("close", () => this.onDrawerClosed());
    // The backdrop is the dialog itself, as a click sees it.
    drawer.addEventListener("click", ({ target }) => { if (target === drawer) drawer.close(); });
  }

  openPartition(partitionKey) {
    const [customerId, day] = partitionKey.split("|");
    this.view.partition = partitionKey;
    writeView(this.view);
    this.grid.activate(customerId, day);
    const row = this.matrix?.rows.find(({ customer_id: id }) => id === customerId);
    byId("drawer-title").textContent = partitionTitle(row?.name ?? customerId, day);
    byId("drawer-body").replaceChildren(element("p", { class: "quiet", text: "Loading" }));
    if (!byId("drawer").open) byId("drawer").showModal();
    byId("drawer-title").focus();
    return this.fillDrawer();
  }

  async fillDrawer() {
    const { asset, partition: key } = this.view;
    let content;
    try {
      const partition = await this.source.partition(asset, key);
      content = partition ? partitionContent(partition) : cellContent(this.kindOf(key), asset);
    } catch (error) {
      content = [element("p", { class: "error-text", role: "alert", text: error.message }),
        actionButton("Try again", () => this.fillDrawer())];
    }
    if (key === this.view.partition && asset === this.view.asset) replaceKeepingPlace(byId("drawer-body"), content);
  }

  kindOf(partitionKey) {
    const [customerId, day] = partitionKey.split("|");
    const row = this.matrix?.rows.find(({ customer_id: id }) => id === customerId);
    const cell = row?.cells[dayNumber(day) - dayNumber(this.matrix.from)];
    return this.kinds?.get(cell) ?? NO_PARTITION;
  }

  onDrawerClosed() {
    const [customerId, day] = this.view.partition.split("|");
    this.view.partition = "";
    writeView(this.view);
    if (!this.grid.activate(customerId, day)) byId("customer").focus();
  }
}

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

function shownWords(shown, all, days) {
  const customers = shown === all ? counted(all, "customer") : `${NUMBERS.format(shown)} of ${counted(all, "customer")}`;
  return `${customers} × ${counted(days, "day")}`;
}

/** What is true of partitions besides their status, each wherever it is true. */
function flagWords(flags) {
  const words = [
    [flags.stale, "stale"],
    [flags.last_attempt_failed, "with a failed last attempt"],
    [flags.last_attempt_cancelled, "with a cancelled last attempt"],
    [flags.overdue, "overdue"],
  ];
  const told = words.filter(([number_]) => number_).map(([number_, what]) => `${NUMBERS.format(number_)} ${what}`);
  return told.length ? `Of all days, whatever their status: ${told.join(", ")}.` : "";
}

function assetGroup(label, assets, kind) {
  const options = assets.filter((asset) => asset.kind === kind)
    .map(({ asset_key: key, title }) => element("option", { value: key, text: title }));
  return options.length ? element("optgroup", { label }, ...options) : null;
}

function actionButton(label, act) {
  const button = element("button", { type: "button", text: label });
  button.addEventListener("click", act);
  return button;
}

/** New content under the reader's eyes: the place stays, and the link that has the keyboard keeps it. */
function replaceKeepingPlace(body, content) {
  const { scrollTop } = body;
  const focusable = () => [...body.querySelectorAll("a, button")];
  const focused = focusable().indexOf(document.activeElement);
  body.replaceChildren(...content);
  body.scrollTop = scrollTop;
  if (focused >= 0) (focusable()[focused] ?? byId("drawer-title")).focus({ preventScroll: true });
}

function onSlash(event) {
  const writing = event.target.closest?.("input, select, textarea, dialog");
  if (event.key !== "/" || writing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  byId("customer").focus();
}

new StatusPage(openSource()).start();
