"use strict";

// Brings the parts together: the address says what to show, the source has it, the grid and the drawer show it.

const TYPING_MILLISECONDS = 120;
const CHANGED_MILLISECONDS = 4_000;
const LIVE_WORDS = {
  loading: "Loading",
  live: "Live",
  reconnecting: "Reconnecting",
  trouble: "No news: the database does not answer",
  file: "Saved file",
};

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
    this.panel = new OverviewPanel({ changed: () => this.changeStatuses() });
    this.drawer = new PartitionDrawer({ closed: () => this.onDrawerClosed() });
    this.bindFilters();
  }

  async start() {
    await this.load();
    if (!this.source.live) {
      this.setLive("file");
      return;
    }
    listenLive({
      state: (state, detail) => this.setLive(state, detail),
      version: (version) => this.onVersion(version),
    });
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
    this.panel.showTop(overview);
    this.panel.showWhole(overview.assets);
    this.fillAssets();
    this.fillTiles();
  }

  async loadMatrix({ newest }) {
    const turn = this.nextTurn();
    const { asset, from, to } = this.view;
    if (!asset) {
      if (this.source.live) {
        this.showEmpty("The catalog has no query with days yet.", "Add one to google_apis.yaml, then reload this page.");
      } else this.showEmpty("This file holds no query with days.", "The served page has them: gads status serve");
      return;
    }
    if (this.daysAreReversed()) {
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
      if (turn === this.turn) this.showUnread(error, newest);
    } finally {
      if (turn === this.turn) byId("scroller").removeAttribute("aria-busy");
    }
  }

  /** The days of another query than the chosen one are no substitute for it. */
  showUnread(error, newest) {
    if (this.matrix?.asset_key !== this.view.asset) {
      this.matrix = null;
      byId("scroller").hidden = true;
      byId("empty").hidden = true;
      byId("caption").textContent = this.asset?.title ?? this.view.asset;
      byId("shown").textContent = "";
      this.fillTiles();
    }
    this.showProblem(error, () => this.loadMatrix({ newest }));
  }

  daysAreReversed() {
    const { from, to } = this.view;
    return Boolean(from && to && from > to);
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
    fillDayField(byId("from"), this.view.from || matrix.from);
    fillDayField(byId("to"), this.view.to || matrix.to);
    this.fillPresets();
    this.fillTiles();
  }

  // Live

  onVersion(version) {
    this.setLive("live");
    // What could not be read may be readable now, whatever the version.
    if (version === this.knownVersion && byId("problem").hidden) return;
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
    if (!this.matrix || this.daysAreReversed()) return this.loadMatrix({ newest: true });
    const { turn, view } = this;
    try {
      // Also if the reader goes elsewhere meanwhile, and nobody waits for these days any more.
      const told = this.source.overview().then((overview) => this.setOverview(overview));
      const [matrix] = await Promise.all([
        this.source.matrix(view.asset, view.from, view.to, this.request.signal),
        told,
      ]);
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

  fillAssets() {
    this.view.asset = this.panel.showAssets(this.overview.assets, this.view.asset);
  }

  fillTiles() {
    const inSight = this.matrix ? displayCounts(this.matrix, this.kinds) : null;
    this.panel.showCounts(this.asset ?? {}, inSight, this.view.statuses);
  }

  get asset() {
    return this.overview?.assets.find(({ asset_key: key }) => key === this.view.asset) ?? null;
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
    this.view.statuses = this.panel.statuses;
    this.filter();
  }

  /** Something else of what is here is to be shown. */
  filter() {
    writeView(this.view);
    if (this.matrix && !this.daysAreReversed()) this.showRows({ newest: false });
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
    if (!this.view.partition) this.drawer.close();
    if (!this.overview) return;
    this.fillAssets();
    this.fillTiles();
    await this.loadMatrix({ newest: true });
    if (this.view.partition) this.openPartition(this.view.partition);
  }

  // The drawer

  openPartition(partitionKey) {
    const [customerId, day] = partitionKey.split("|");
    this.opened = partitionKey;
    this.view.partition = partitionKey;
    writeView(this.view);
    this.grid.activate(customerId, day);
    const row = this.matrix?.rows.find(({ customer_id: id }) => id === customerId);
    this.drawer.open(partitionTitle(row?.name ?? customerId, day));
    return this.fillDrawer();
  }

  fillDrawer() {
    const { asset, partition: key } = this.view;
    return this.drawer.show(async () => {
      const partition = await this.source.partition(asset, key);
      return partition ? partitionContent(partition) : cellContent(this.kindOf(key), asset);
    });
  }

  kindOf(partitionKey) {
    const [customerId, day] = partitionKey.split("|");
    const row = this.matrix?.rows.find(({ customer_id: id }) => id === customerId);
    const cell = row?.cells[dayNumber(day) - dayNumber(this.matrix.from)];
    return this.kinds?.get(cell) ?? NO_PARTITION;
  }

  onDrawerClosed() {
    const [customerId, day] = this.opened.split("|");
    this.view.partition = "";
    writeView(this.view);
    if (!this.grid.activate(customerId, day)) byId("customer").focus();
  }
}

/** Not while somebody is writing in it. */
function fillDayField(field, day) {
  if (document.activeElement !== field) field.value = day;
}

function shownWords(shown, all, days) {
  const customers = shown === all ? counted(all, "customer") : `${NUMBERS.format(shown)} of ${counted(all, "customer")}`;
  return `${customers} × ${counted(days, "day")}`;
}

function onSlash(event) {
  const writing = event.target.closest?.("input:not([type=checkbox]), select, textarea, dialog");
  if (event.key !== "/" || writing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  byId("customer").focus();
}

new StatusPage(openSource()).start();
