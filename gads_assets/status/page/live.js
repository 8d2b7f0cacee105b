"use strict";

// The server's news: how the connection is, and each new version.

const RECONNECT_MILLISECONDS = 5_000;

function listenLive({ state, version }) {
  const stream = new EventSource("api/live");
  stream.addEventListener("open", () => state("live"));
  stream.addEventListener("message", ({ data }) => version(JSON.parse(data).version));
  stream.addEventListener("trouble", ({ data }) => state("trouble", JSON.parse(data).error));
  stream.addEventListener("error", () => {
    state("reconnecting");
    // A browser tries again by itself after a broken connection, but not after an answer that is no stream.
    if (stream.readyState === EventSource.CLOSED) {
      setTimeout(() => listenLive({ state, version }), RECONNECT_MILLISECONDS);
    }
  });
}
