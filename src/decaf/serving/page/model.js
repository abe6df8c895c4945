// The panel about the model: what it learned from, how good it is, how fast this server answers.

import { attempt, getJSON, postJSON } from "./api.js";
import { $, bytes, counted, h, number, svg } from "./dom.js";
import { say } from "./messages.js";
import { state, watch } from "./state.js";

const REFRESH = 3_000;

const MEASURES = {
  P: "precision",
  N: "nDCG",
  PSP: "propensity-scored precision",
  PSN: "propensity-scored nDCG",
  R: "recall",
  C: "coverage",
};

const TOLD = ["recipe", "run"]; // facts that the panel's head says, the run by the version

let model = null;

export const currentModel = () => model;

export async function loadModel() {
  model = (await attempt(() => getJSON("v1/model"))) ?? model;
  if (!model) return null;
  $("#model-name").textContent = `${model.name}, ${counted(model.labels, "label")}`;
  $("#model").replaceChildren(...contents());
  document.dispatchEvent(new Event("model-loaded"));
  return model;
}

export function start() {
  watch(["tab"], ({ tab }) => tab === "model" && loadModel());
  document.addEventListener("labels-changed", loadModel);
  setInterval(refreshLatency, REFRESH);
}

async function refreshLatency() {
  if (state().tab !== "model" || document.hidden) return;
  const now = await getJSON("v1/model", { quiet: true }).catch(() => null); // the next one may come through
  if (now) $("[data-testid=latency]")?.replaceWith(latency(now.latency_ms));
}

function contents() {
  const { name, version, recipe, statistics, metrics, quantiles } = model;
  const facts = Object.fromEntries(Object.entries(model.facts).filter(([name]) => !TOLD.includes(name)));
  return [
    h("div.model-head",
      h("div", h("h1", name), h("p.hint", `${recipe} recipe, version `, h("code", version))),
      h("button.quiet", { id: "reload", onclick: reload }, "Reload")),
    h("h2", "Answer time of this server"),
    latency(model.latency_ms),
    h("h2", "How good"),
    metrics ? measures(metrics) : absent("No test documents were judged with this model; decaf evaluate does."),
    h("h2", "Where precision comes from"),
    quantiles?.length ? quantileChart(quantiles) : absent("Not known for this model."),
    h("h2", "Learned from"),
    statistics ? figures(statistics) : absent("The dataset's statistics were not kept with this model."),
    h("h2", "Inside"),
    figures({ labels: model.labels, added_or_changed: model.live_labels, hidden: model.hidden_labels, ...facts }),
  ].flat();
}

const absent = (why) => h("p.hint", why);

async function reload() {
  const { version } = (await attempt(() => postJSON("v1/model/reload", {}))) ?? {};
  if (!version) return;
  say(`Version ${version} is in use.`);
  document.dispatchEvent(new Event("labels-changed"));
}

function latency({ count, p50, p90, p99 }) {
  const figure = (name, value) => h("div", h("dt", name), h("dd", number(value), h("small", " ms")));
  return h("div", { "data-testid": "latency" }, count
    ? [h("dl.figures.large", figure("half within", p50), figure("90 % within", p90), figure("99 % within", p99)),
       h("p.hint", `Over the last ${counted(count, "request")}.`)]
    : absent("No request has been answered yet."));
}

function figures(values) {
  const { bytes: size, ...others } = values;
  const shown = Object.entries(others).map(([name, value]) => [name.replaceAll("_", " "), number(value)]);
  if (size !== undefined) shown.push(["size", bytes(size)]);
  return h("dl.figures", shown.map(([name, value]) => h("div", h("dt", name), h("dd", value))));
}

/** The table, and below it what is no share of the best but a figure of its own. */
function measures(metrics) {
  const [shares, others] = [true, false].map((ranked) =>
    Object.fromEntries(Object.entries(metrics).filter(([name]) => name.includes("@") === ranked)));
  return [metricsTable(shares), Object.keys(others).length > 0 && figures(others)].filter(Boolean);
}

/** One row for each measure, one column for each number of labels that it looks at: P@5 stands in row P, column 5. */
function metricsTable(metrics) {
  const names = Object.keys(metrics).map((name) => name.split("@"));
  const depths = [...new Set(names.map(([, depth]) => Number(depth)))].sort((a, b) => a - b);
  const measures = [...new Set(names.map(([measure]) => measure))];
  const row = (measure) => h("tr",
    h("th", { scope: "row" }, measure, " ", h("small", MEASURES[measure] ?? "")),
    depths.map((depth) => h("td.figure", metrics[`${measure}@${depth}`]?.toFixed(2) ?? "")));
  const heads = depths.map((depth) => h("th.figure", { scope: "col" }, `@${depth}`));
  return h("table.metrics", { "data-testid": "metrics" },
    h("caption.unseen", "Measures on the test documents, in per cent"),
    h("thead", h("tr", h("th", { scope: "col" }, "per cent"), heads)),
    h("tbody", measures.map(row)));
}

/** Bars from the rarest labels to the most frequent: what each group of labels adds to P@5. */
function quantileChart(quantiles) {
  const [step, height, head, foot] = [96, 120, 22, 40];
  const width = step * quantiles.length;
  const viewBox = `0 0 ${width} ${head + height + foot}`;
  const most = Math.max(...quantiles.map((one) => one.contribution)) || 1;
  const told = quantiles.map((one) => `${meanOf(one)} documents: ${number(one.contribution)}`).join("; ");
  const label = `Points of P@5 by label frequency. ${told}`;
  const column = (one, at) => {
    const size = (height * Math.max(0, one.contribution)) / most;
    const middle = step * (at + 0.5);
    return svg("g",
      svg("rect.column", { x: middle - 22, y: head + height - size, width: 44, height: size, rx: 3 }),
      words(middle, head + height - size - 7, "value", number(one.contribution)),
      words(middle, head + height + 17, "range", meanOf(one)),
      words(middle, head + height + 33, "note", counted(one.labels, "label")));
  };
  return h("figure.chart",
    svg("svg", { viewBox, role: "img", "aria-label": label, "data-testid": "quantiles" },
      svg("line.axis", { x1: 0, x2: width, y1: head + height, y2: head + height }),
      quantiles.map(column)),
    h("figcaption.hint", "Points of P@5 from labels with about so many training documents each, from rare to frequent."));
}

const words = (x, y, kind, text) => svg("text", { class: kind, x, y, "text-anchor": "middle" }, text);

const meanOf = ({ mean_frequency: mean }) => `≈ ${number(mean < 10 ? Number(mean.toFixed(1)) : Math.round(mean))}`;
