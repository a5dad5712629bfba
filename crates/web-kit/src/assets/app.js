// What pages do beyond HTML: copying a text, forgetting what is shown once, and drawing charts with
// uPlot where it is loaded.
"use strict";

for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

// What is shown once is gone when the page is left: going back does not bring it.
addEventListener("pagehide", () => {
  for (const shown of document.querySelectorAll("[data-once]")) shown.replaceChildren();
});

// On a phone the ways are one line that scrolls: the one that is open is in sight.
document.querySelector(".side [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const COLOURS = ["#0f8f77", "#b4540a", "#3f6fd1", "#a03a9b", "#7a8600", "#c23b3b", "#5b7083", "#008aa8"];
const DAY_S = 86400;

function draw(figure) {
  const { x, lines, unit = "", bars = false } = JSON.parse(figure.dataset.chart);
  const shown = (value) => value == null ? "–"
    : unit === "$" ? "$" + (value > 0 && value < 0.01 ? value.toLocaleString("en", { maximumSignificantDigits: 3 }) : value.toFixed(value < 1 ? 4 : 2))
    : value.toLocaleString("en") + (unit ? " " + unit : "");
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  const step = x.length > 1 ? x[1] - x[0] : DAY_S;
  const options = {
    width: figure.clientWidth,
    height: 200,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1] } },
    axes: [
      { ...axis, values: step >= DAY_S ? "{YYYY}-{MM}-{DD}" : undefined, space: step >= DAY_S ? 90 : 50 },
      { ...axis, size: 64, values: (_, ticks) => ticks.map(shown) },
    ],
    series: [
      { label: "UTC", value: step >= DAY_S ? "{YYYY}-{MM}-{DD}" : "{YYYY}-{MM}-{DD} {HH}:{mm}" },
      ...lines.map((line, at) => ({
        label: line.label,
        stroke: COLOURS[at % COLOURS.length],
        fill: bars ? COLOURS[at % COLOURS.length] + "cc" : undefined,
        width: 2,
        points: { show: !bars && x.length < 3 },
        paths: bars ? uPlot.paths.bars({ size: [0.7, 60] }) : undefined,
        value: (_, value) => shown(value),
      })),
    ],
  };
  const plot = new uPlot(options, [x, ...lines.map((line) => line.values)], figure);
  new ResizeObserver(() => plot.setSize({ width: figure.clientWidth, height: 200 })).observe(figure);
}

if (window.uPlot) document.querySelectorAll("[data-chart]").forEach(draw);
