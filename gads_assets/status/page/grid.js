"use strict";

// The matrix: customers down, days across. Only what can be seen is in the document, and a little around it; the
// spacers keep everything else's room.

const ROWS_AROUND = 4;
const COLUMNS_AROUND = 6;

class MatrixGrid {
  /** `open(row, day)` when a cell is chosen; `point(words)` when one is looked at, by pointer or by keyboard. */
  constructor({ open, point }) {
    this.open = open;
    this.point = point;
    this.model = { rows: [], days: [], kinds: new Map(), chosen: new Set() };
    this.changed = new Set();
    this.active = { row: 0, column: 0 };
    this.scroller = document.getElementById("scroller");
    this.grid = document.getElementById("grid");
    this.head = this.grid.querySelector(".head");
    this.months = document.getElementById("months");
    this.above = document.getElementById("above");
    this.buildHead(document.getElementById("days"));
    this.rows = new Strip({
      container: document.getElementById("rows"),
      make: () => this.makeRow(),
      fill: (row, index) => this.fillRow(row, index),
    });
    this.frame = 0;
    this.listen();
  }

  buildHead(daysRow) {
    this.corner = element("div", { class: "name corner", role: "columnheader", "aria-colindex": "1", text: "Customer" });
    this.daysGap = element("div", { class: "gap", "aria-hidden": "true" });
    daysRow.append(this.corner, this.daysGap);
    this.days = new Strip({
      container: daysRow,
      make: () => ({ element: element("div", { class: "day", role: "columnheader" }) }),
      fill: (item, column) => this.fillDay(item.element, column),
    });
  }

  listen() {
    this.scroller.addEventListener("scroll", () => this.renderSoon(), { passive: true });
    new ResizeObserver(() => this.resize()).observe(this.scroller);
    // Cells are larger for fingers, and a tablet may be given a mouse.
    matchMedia("(pointer: coarse)").addEventListener("change", () => this.resize());
    this.grid.addEventListener("keydown", (event) => this.onKey(event));
    this.grid.addEventListener("click", (event) => this.onClick(event));
    this.grid.addEventListener("pointerover", (event) => this.onPoint(event));
    this.grid.addEventListener("pointerleave", () => this.look(null));
    this.grid.addEventListener("focusin", (event) => this.onPoint(event));
  }

  /** Shows a model; `newest` scrolls to its last days, otherwise the same days stay in sight. */
  show(model, { newest = false, changed = new Set() } = {}) {
    const before = this.model;
    const wasAtEnd = this.scroller.scrollLeft >= this.scroller.scrollWidth - this.scroller.clientWidth - 2;
    const kept = { customer: before.rows[this.active.row]?.customer_id, day: before.days[this.active.column] };
    this.model = model;
    this.changed = changed;
    this.measure();
    this.grid.setAttribute("aria-rowcount", String(model.rows.length + 1));
    this.grid.setAttribute("aria-colcount", String(model.days.length + 1));
    this.grid.style.width = `${this.nameWidth + model.days.length * this.pitch}px`;
    this.grid.style.height = `${this.headHeight + model.rows.length * this.pitch}px`;
    this.keepActive(kept, newest);
    if (newest || wasAtEnd) this.scroller.scrollLeft = this.scroller.scrollWidth;
    else if (before.days.length && model.days.length) {
      this.scroller.scrollLeft += (dayNumber(before.days[0]) - dayNumber(model.days[0])) * this.pitch;
    }
    this.render(true);
  }

  keepActive({ customer, day }, newest) {
    const { rows, days } = this.model;
    const row = rows.findIndex(({ customer_id: id }) => id === customer);
    const column = newest ? -1 : days.indexOf(day);
    this.active = { row: Math.max(0, row), column: column < 0 ? Math.max(0, days.length - 1) : column };
  }

  /** Ends the marking of what changed. */
  settle() {
    this.changed = new Set();
    this.render(true);
  }

  /** Puts the keyboard on a partition's cell, if it is among those shown. */
  activate(customer, day) {
    const row = this.model.rows.findIndex(({ customer_id: id }) => id === customer);
    const column = this.model.days.indexOf(day);
    if (row < 0 || column < 0) return false;
    this.move(row, column);
    return true;
  }

  measure() {
    this.pitch = parseFloat(getComputedStyle(this.scroller).getPropertyValue("--pitch"));
    this.nameWidth = this.corner.offsetWidth;
    this.headHeight = this.head.offsetHeight;
  }

  resize() {
    if (!this.model.days.length) return;
    const { pitch, nameWidth, headHeight } = this;
    this.measure();
    const same = pitch === this.pitch && nameWidth === this.nameWidth && headHeight === this.headHeight;
    if (same) this.renderSoon();
    else this.show(this.model, { changed: this.changed });
  }

  renderSoon() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.render(false);
    });
  }

  /** `again` when what is shown has changed, not only the place. */
  render(again) {
    const seen = this.seen();
    this.parkFocus(seen);
    this.above.style.height = `${seen.top * this.pitch}px`;
    this.daysGap.style.width = `${seen.left * this.pitch}px`;
    this.days.slide(seen.left, seen.right);
    this.rows.slide(seen.top, seen.bottom);
    if (again) {
      this.days.refill();
      this.rows.refill();
    }
    for (const row of this.rows.items) this.slideCells(row, seen);
    this.fillMonths(seen);
    this.takeFocusBack();
  }

  seen() {
    const { scrollTop, scrollLeft, clientHeight, clientWidth } = this.scroller;
    const { rows, days } = this.model;
    const [top, bottom] = span(scrollTop, clientHeight - this.headHeight, this.pitch, rows.length, ROWS_AROUND);
    const [left, right] = span(scrollLeft, clientWidth - this.nameWidth, this.pitch, days.length, COLUMNS_AROUND);
    return { top, bottom, left, right };
  }

  // An element that is moved loses the focus, and with it the reader their place. The grid itself holds the focus
  // while the active cell is out of sight, and arrow keys still start from that cell.
  parkFocus({ top, bottom, left, right }) {
    const { row, column } = this.active;
    const inSight = row >= top && row < bottom && column >= left && column < right;
    if (!inSight && this.cellAt(row, column) === document.activeElement && document.activeElement !== null) {
      this.grid.tabIndex = 0;
      this.grid.focus({ preventScroll: true });
    }
  }

  takeFocusBack() {
    const cell = this.cellAt(this.active.row, this.active.column);
    const held = document.activeElement === this.grid;
    if (cell && held) cell.focus({ preventScroll: true });
    if (cell) this.grid.removeAttribute("tabindex");
    else this.grid.tabIndex = 0;
  }

  cellAt(row, column) {
    return this.rows.at(row)?.cells.at(column)?.element ?? null;
  }

  makeRow() {
    const row = {
      element: element("div", { class: "row", role: "row" }),
      name: element("div", { class: "name", role: "rowheader", "aria-colindex": "1" }),
      gap: element("div", { class: "gap", "aria-hidden": "true" }),
      index: 0,
      refilled: false,
    };
    row.element.append(row.name, row.gap);
    row.cells = new Strip({
      container: row.element,
      make: () => ({ element: element("div", { role: "gridcell" }) }),
      fill: (cell, column) => this.fillCell(cell.element, row.index, column),
    });
    return row;
  }

  fillRow(row, index) {
    const { customer_id: id, name, is_active: isActive } = this.model.rows[index];
    row.index = index;
    row.refilled = true;
    row.element.setAttribute("aria-rowindex", String(index + 2));
    row.name.replaceChildren(
      element("span", { class: "customer", text: name }),
      element("span", { class: "customer-id", text: isActive ? dashed(id) : `inactive ${dashed(id)}` }),
    );
    row.name.title = `${name}, ${dashed(id)}${isActive ? "" : ", inactive"}`;
    row.name.classList.toggle("is-inactive", !isActive);
  }

  slideCells(row, { left, right }) {
    row.gap.style.width = `${left * this.pitch}px`;
    row.cells.slide(left, right);
    if (row.refilled) row.cells.refill();
    row.refilled = false;
  }

  fillCell(cell, rowIndex, column) {
    const row = this.model.rows[rowIndex];
    const day = this.model.days[column];
    const kind = this.kindAt(row, column);
    const dimmed = this.model.chosen.size > 0 && !this.model.chosen.has(kind.display);
    const changed = this.changed.size > 0 && this.changed.has(`${row.customer_id}|${day}`);
    cell.className = `cell ${kind.look}${dimmed ? " is-dimmed" : ""}${changed ? " is-changed" : ""}`;
    cell.setAttribute("aria-colindex", String(column + 2));
    cell.setAttribute("aria-label", `${row.name}, ${day}, ${kind.words}`);
    cell.tabIndex = rowIndex === this.active.row && column === this.active.column ? 0 : -1;
  }

  kindAt(row, column) {
    return this.model.kinds.get(row.cells[column]) ?? NO_PARTITION;
  }

  fillDay(header, column) {
    const day = this.model.days[column];
    const weekday = new Date(dayNumber(day) * DAY_MILLISECONDS).getUTCDay();
    header.textContent = String(Number(day.slice(8)));
    header.setAttribute("aria-colindex", String(column + 2));
    header.setAttribute("aria-label", day);
    header.title = `${WEEKDAYS.format(new Date(`${day}T00:00:00Z`))}, ${day}`;
    header.className = `day${weekday === 0 || weekday === 6 ? " is-weekend" : ""}${day.endsWith("-01") ? " is-first" : ""}`;
  }

  fillMonths({ left, right }) {
    const stretches = [];
    for (let column = left; column < right; column += 1) {
      const month = this.model.days[column].slice(0, 7);
      const last = stretches.at(-1);
      if (last?.month === month) last.days += 1;
      else stretches.push({ month, days: 1 });
    }
    const gap = element("div", { class: "gap" });
    gap.style.width = `${left * this.pitch}px`;
    const labels = stretches.map(({ month, days }) => {
      const band = element("div", { class: "month" });
      band.style.width = `${days * this.pitch}px`;
      // A band of a day or two has no room for a name, and the one beside it says it.
      if (days > 2) band.append(element("span", { text: MONTHS.format(new Date(`${month}-01T00:00:00Z`)) }));
      return band;
    });
    this.months.replaceChildren(element("div", { class: "name corner" }), gap, ...labels);
  }

  onKey(event) {
    const target = this.target(event);
    if (target) {
      event.preventDefault();
      this.move(target.row, target.column);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.choose(this.active.row, this.active.column);
    }
  }

  target({ key, ctrlKey, metaKey, altKey }) {
    const { row, column } = this.active;
    const lastRow = this.model.rows.length - 1;
    const lastColumn = this.model.days.length - 1;
    const page = Math.max(1, Math.floor((this.scroller.clientHeight - this.headHeight) / this.pitch) - 1);
    const whole = ctrlKey || metaKey;
    if (altKey) return null;
    switch (key) {
      case "Home":
        return { row: whole ? 0 : row, column: 0 };
      case "End":
        return { row: whole ? lastRow : row, column: lastColumn };
    }
    if (whole) return null;
    switch (key) {
      case "ArrowLeft":
        return { row, column: Math.max(0, column - 1) };
      case "ArrowRight":
        return { row, column: Math.min(lastColumn, column + 1) };
      case "ArrowUp":
        return { row: Math.max(0, row - 1), column };
      case "ArrowDown":
        return { row: Math.min(lastRow, row + 1), column };
      case "PageUp":
        return { row: Math.max(0, row - page), column };
      case "PageDown":
        return { row: Math.min(lastRow, row + page), column };
      default:
        return null;
    }
  }

  move(row, column) {
    this.setActive(row, column);
    this.reveal(row, column);
    this.render(false);
    this.cellAt(row, column)?.focus({ preventScroll: true });
  }

  setActive(row, column) {
    const before = this.cellAt(this.active.row, this.active.column);
    if (before) before.tabIndex = -1;
    this.active = { row, column };
    const now = this.cellAt(row, column);
    if (now) now.tabIndex = 0;
  }

  reveal(row, column) {
    const { scroller, pitch } = this;
    scroller.scrollTop = nearest(scroller.scrollTop, row * pitch, pitch, scroller.clientHeight - this.headHeight);
    scroller.scrollLeft = nearest(scroller.scrollLeft, column * pitch, pitch, scroller.clientWidth - this.nameWidth);
  }

  onClick(event) {
    const place = this.placeOf(event.target);
    if (!place) return;
    this.setActive(place.row, place.column);
    this.choose(place.row, place.column);
  }

  choose(row, column) {
    const customer = this.model.rows[row];
    if (customer && this.kindAt(customer, column) !== NO_PARTITION) this.open(customer, this.model.days[column]);
  }

  onPoint(event) {
    const place = this.placeOf(event.target);
    if (event.type === "focusin" && place) this.setActive(place.row, place.column);
    this.look(place);
  }

  placeOf(node) {
    const cell = node.closest?.("[role=gridcell]");
    if (!cell) return null;
    return {
      row: Number(cell.parentElement.getAttribute("aria-rowindex")) - 2,
      column: Number(cell.getAttribute("aria-colindex")) - 2,
    };
  }

  /** Marks a cell's customer and day in the heads, and says what it is. */
  look(place) {
    for (const marked of this.grid.querySelectorAll(".is-here")) marked.classList.remove("is-here");
    if (!place) {
      this.point("");
      return;
    }
    this.rows.at(place.row)?.name.classList.add("is-here");
    this.days.at(place.column)?.element.classList.add("is-here");
    this.point(this.cellAt(place.row, place.column)?.getAttribute("aria-label") ?? "");
  }
}

function dashed(customerId) {
  return customerId.replace(/^(\d{3})(\d{3})(\d{4})$/, "$1-$2-$3");
}
