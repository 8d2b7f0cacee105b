"use strict";

// Which part of a long line of items is in sight, and the elements for just that part. Those that leave on one side are
// used again on the other, always in the order in which they are read.

/** A stretch of elements for first…end, kept in a container before `anchor`. */
class Strip {
  constructor({ container, anchor = null, make, fill }) {
    this.container = container;
    this.anchor = anchor;
    this.make = make;
    this.fill = fill;
    this.items = [];
    this.first = 0;
  }

  get end() {
    return this.first + this.items.length;
  }

  at(index) {
    return this.items[index - this.first];
  }

  slide(first, end) {
    const spare = this.release(first, end);
    const next = () => spare.pop() ?? this.make();
    while (this.first > first) {
      const item = next();
      this.container.insertBefore(item.element, this.items[0]?.element ?? this.anchor);
      this.items.unshift(item);
      this.first -= 1;
      this.fill(item, this.first);
    }
    while (this.end < end) {
      const item = next();
      this.container.insertBefore(item.element, this.anchor);
      this.items.push(item);
      this.fill(item, this.end - 1);
    }
    for (const item of spare) item.element.remove();
  }

  release(first, end) {
    if (end <= this.first || first >= this.end) {
      const all = this.items;
      this.items = [];
      this.first = first;
      return all;
    }
    const before = this.items.splice(0, Math.max(0, first - this.first));
    this.first += before.length;
    return [...before, ...this.items.splice(Math.max(0, end - this.first))];
  }

  refill() {
    this.items.forEach((item, index) => this.fill(item, this.first + index));
  }
}

/** First and end of the items that a window over them shows, with some around. */
function span(offset, room, pitch, count, around) {
  const first = Math.min(Math.max(0, Math.floor(offset / pitch) - around), Math.max(0, count - 1));
  const end = Math.min(count, Math.ceil((offset + Math.max(0, room)) / pitch) + around);
  return [Math.min(first, end), end];
}

/** The offset closest to the present one at which an item is whole in sight. */
function nearest(offset, start, size, room) {
  if (start < offset) return start;
  return start + size > offset + room ? start + size - room : offset;
}
