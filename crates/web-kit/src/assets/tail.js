// The live tail of requests: rows come from the server, escaped there, and are put above the list.
"use strict";

const ROWS_MAX = 200;
const tail = document.querySelector("[data-tail]");
const pause = document.querySelector("[data-pause]");
const rows = document.getElementById("rows");

if (tail && rows && window.EventSource) {
  let paused = false;
  let waiting = [];
  let missed = 0;
  const say = (text) => { tail.textContent = text + (missed > 0 ? ` ${missed} came too fast and are left out.` : ""); };
  const put = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    rows.prepend(template.content);
    document.getElementById("none")?.remove();
    while (rows.rows.length > ROWS_MAX) rows.rows[rows.rows.length - 1].remove();
  };
  const source = new EventSource(tail.dataset.tail);
  source.addEventListener("open", () => say(paused ? "Paused." : "Live."));
  source.addEventListener("error", () => say(source.readyState === EventSource.CLOSED ? "The tail has ended. Reload the page." : "The tail was cut off. It is taken up again."));
  source.addEventListener("row", (event) => {
    if (!paused) return put(event.data);
    waiting.push(event.data);
    if (waiting.length > ROWS_MAX) waiting.shift();
  });
  source.addEventListener("missed", (event) => { missed += Number(event.data); say(paused ? "Paused." : "Live."); });
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    waiting.forEach(put);
    waiting = [];
    say(paused ? "Paused." : "Live.");
  });
  window.addEventListener("pagehide", () => source.close());
}
