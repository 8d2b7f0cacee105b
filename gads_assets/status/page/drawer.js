"use strict";

// The dialog beside the matrix. The browser keeps the keyboard inside it and closes it on Escape.

class PartitionDrawer {
  /** `closed()` when the reader shuts it. */
  constructor({ closed }) {
    this.dialog = byId("drawer");
    this.title = byId("drawer-title");
    this.body = byId("drawer-body");
    this.turn = 0;
    byId("drawer-close").addEventListener("click", () => this.close());
    this.dialog.addEventListener("close", closed);
    // The backdrop is the dialog itself, as a click sees it.
    this.dialog.addEventListener("click", ({ target }) => { if (target === this.dialog) this.close(); });
  }

  open(title) {
    this.title.textContent = title;
    this.body.replaceChildren(element("p", { class: "quiet", text: "Loading" }));
    if (!this.dialog.open) this.dialog.showModal();
    this.title.focus();
  }

  close() {
    this.dialog.close();
  }

  /** Shows what `read` gives, or why it gives nothing; of two at once the later counts. */
  async show(read) {
    this.turn += 1;
    const { turn } = this;
    let content;
    try {
      content = await read();
    } catch (error) {
      content = [
        element("p", { class: "error-text", role: "alert", text: error.message }),
        actionButton("Try again", () => this.show(read)),
      ];
    }
    if (turn === this.turn) this.replace(content);
  }

  /** New content under the reader's eyes: the place stays, and the link that has the keyboard keeps it. */
  replace(content) {
    const { scrollTop } = this.body;
    const focused = document.activeElement;
    // Newer runs come before it, so it is found by where it leads; of several to the same place, by its turn.
    const alike = () => [...this.body.querySelectorAll("a, button")].filter(({ href }) => href === focused.href);
    const turn = this.body.contains(focused) ? alike().indexOf(focused) : -1;
    this.body.replaceChildren(...content);
    this.body.scrollTop = scrollTop;
    if (turn >= 0) (alike()[turn] ?? this.title).focus({ preventScroll: true });
  }
}
