// The panel where one types a text and sees its labels.

import { attempt, getJSON, latest, postJSON } from "./api.js";
import { $, badges, bar, counted, debounced, h, icon, number, percent, setProperties } from "./dom.js";
import { currentModel } from "./model.js";
import { change, state, watch } from "./state.js";
import { explanation } from "./why.js";

const EXAMPLES = 5;

const box = $("#text");
const list = $("#answers");
const knobs = { top: $("#top"), threshold: $("#threshold"), tail: $("#tail") };

const rows = new Map(); // id -> its row, kept while the label stays among the answers so that nothing flickers
const opened = new Set(); // ids of the answers whose explanation is shown
let shown = { text: "", labels: [] };
const nextSignal = latest();

/** What a prediction is asked for beside its texts. */
export function wishes() {
  const { top, threshold, tail } = state();
  return { top, threshold, tail: currentModel()?.tail === null ? null : tail };
}

export async function predict() {
  const signal = nextSignal();
  const { text } = state();
  const known = Boolean(text.trim());
  $("#examples").hidden = known;
  if (!known) return show(text, []);
  const started = performance.now();
  const question = { texts: [text], ...wishes(), explain: opened.size > 0 };
  const answer = await attempt(() => postJSON("v1/predict", question, { signal }));
  if (answer) show(text, answer.predictions[0].labels, performance.now() - started);
  else if (!signal.aborted) closeAll();
}

/** A few texts to click, spread over the labels since the model can be about anything. */
export async function showExamples() {
  const stretch = 20; // labels looked through for one of a few words
  const { labels } = currentModel();
  const offsets = Array.from({ length: EXAMPLES }, (_, at) => Math.floor((labels * (at + 0.5)) / EXAMPLES));
  const pages = await attempt(() =>
    Promise.all(offsets.map((offset) => getJSON(`v1/labels?offset=${offset}&limit=${stretch}`))),
  );
  const texts = new Set(pages?.map((page) => wordy(page.labels)).filter(Boolean));
  const example = (text) => h("li", h("button", { onclick: () => type(text) }, text));
  $("#examples ul").replaceChildren(...[...texts].map(example));
}

/** Takes a text as if it had been typed, and puts all else out of its way. */
export function type(text) {
  change({ tab: "try", text, label: null }, { push: true });
  box.focus();
}

function wordy(labels) {
  const texts = labels.map((label) => label.text);
  return texts.find((text) => /\w \w/.test(text) && text.length <= 48) ?? texts[0];
}

function show(text, labels, took = null) {
  shown = { text, labels };
  const ids = new Set(labels.map((label) => label.id));
  for (const id of rows.keys()) if (!ids.has(id)) forget(id);
  labels.forEach((label, place) => {
    const row = rows.get(label.id) ?? newRow(label.id);
    update(row, label);
    if (list.children[place] !== row) list.insertBefore(row, list.children[place] ?? null); // moving costs the focus
  });
  $("#count").textContent = text.trim() ? summary(labels.length) : "";
  $("#took").textContent = took === null ? "" : `${number(Math.round(took))} ms, there and back`;
}

function summary(count) {
  if (count) return counted(count, "label");
  return state().threshold > 0 ? "No label is that likely." : "No word of this text is known.";
}

function forget(id) {
  rows.get(id).remove();
  rows.delete(id);
  opened.delete(id);
}

function newRow(id) {
  const main = h("button.answer-main", { "aria-expanded": "false", onclick: () => toggle(id) },
    icon("chevron"), h("span.answer-text"), h("span.score", { "data-testid": "score" }), bar(0));
  const look = () => change({ label: id }, { push: true });
  const near = h("button.icon.near", { "data-testid": "details", title: "Neighbours", onclick: look }, icon("near"));
  const row = h("li.answer", { "data-testid": "answer", "data-id": id }, h("div.answer-head", main, near));
  rows.set(id, row);
  return row;
}

function update(row, label) {
  const text = label.text || label.id;
  $(".answer-text", row).replaceChildren(h("span", text), h("code.id", label.id), ...badges(label));
  $(".near", row).setAttribute("aria-label", `Neighbours of ${text}`);
  $(".score", row).textContent = percent(label.score);
  setProperties($(".bar", row), { "--share": label.score });
  const open = opened.has(label.id);
  $(".answer-main", row).setAttribute("aria-expanded", String(open));
  const before = $(".why", row);
  if (!open) before?.remove();
  else if (label.parts) {
    const now = explanation(shown.text, label);
    if (before) before.replaceWith(now);
    else row.append(now);
  }
}

function toggle(id) {
  if (!opened.delete(id)) opened.add(id);
  const label = shown.labels.find((one) => one.id === id);
  update(rows.get(id), label);
  if (opened.has(id) && !label.parts) predict(); // now with explanations
}

function closeAll() {
  opened.clear();
  for (const label of shown.labels) update(rows.get(label.id), label);
}

function showKnobs() {
  const { top, threshold, tail } = state();
  const model = currentModel();
  const leaning = tail ?? model?.tail ?? 0;
  if (model) knobs.top.max = model.limits.top;
  $("#tail-knob").hidden = (model?.tail ?? null) === null;
  if (document.activeElement !== knobs.top) knobs.top.value = top; // while it is typed, let it be
  knobs.threshold.value = threshold;
  knobs.tail.value = leaning;
  $("#threshold-value").textContent = `${Math.round(100 * threshold)} %`;
  $("#tail-value").textContent = number(leaning);
  $("#tail-reset").hidden = tail === null;
}

function noteKnob(name) {
  const input = knobs[name];
  if (input.value !== "" && input.checkValidity()) change({ [name]: Number(input.value) });
}

/** Up and down go from answer to answer, and from and to the text. */
function moveAmongAnswers(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const inText = event.target === box;
  if (!step || (inText && (step < 0 || box.selectionEnd < box.value.length))) return;
  const stops = [box, ...list.querySelectorAll(".answer-main")];
  const here = inText ? 0 : stops.indexOf($(".answer-main", event.target.closest(".answer")));
  const next = stops[here + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

function fitHeight() {
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
}

export function start() {
  box.value = state().text;
  showKnobs();
  box.addEventListener("input", fitHeight);
  box.addEventListener("input", debounced(120, () => change({ text: box.value })));
  box.addEventListener("keydown", moveAmongAnswers);
  list.addEventListener("keydown", moveAmongAnswers);
  for (const [name, knob] of Object.entries(knobs)) {
    knob.addEventListener("input", debounced(60, () => noteKnob(name)));
    knob.addEventListener("change", () => noteKnob(name));
  }
  knobs.top.addEventListener("blur", showKnobs); // what was no number goes back to what it was
  $("#tail-reset").addEventListener("click", () => change({ tail: null }));
  watch(["text"], ({ text }) => {
    if (box.value !== text) box.value = text;
  });
  watch(["text", "tab"], fitHeight); // a hidden box has no height to measure
  watch(["top", "threshold", "tail"], showKnobs);
  watch(["text", "top", "threshold", "tail"], predict);
  document.addEventListener("labels-changed", predict);
  document.addEventListener("model-loaded", showKnobs);
  fitHeight();
}
