// The panel of labels: search, add, and what was changed here.

import { attempt, call, getJSON, latest, putLabel } from "./api.js";
import { $, badges, counted, debounced, h, number, saveFile } from "./dom.js";
import { bringBack } from "./drawer.js";
import { say } from "./messages.js";
import { change, state, watch } from "./state.js";

const PAGE = 20;
const search = $("#search");
const liveOnly = $("#live-only");
const nextSignal = latest();

export function start() {
  $("#add").addEventListener("submit", add);
  $("#export").addEventListener("click", exportChanges);
  $("#earlier").addEventListener("click", () => change({ from: Math.max(0, state().from - PAGE) }, { push: true }));
  $("#later").addEventListener("click", () => change({ from: state().from + PAGE }, { push: true }));
  search.addEventListener("input", debounced(120, () => change({ q: search.value, from: 0 })));
  liveOnly.addEventListener("change", () => change({ live: liveOnly.checked, from: 0 }));
  watch(["q"], () => {
    search.value = state().q;
  });
  watch(["tab", "q", "live", "from"], load);
  document.addEventListener("labels-changed", load);
  search.value = state().q;
  load();
}

async function load() {
  const { tab, q, live, from } = state();
  if (tab !== "labels") return;
  liveOnly.checked = live;
  const wanted = new URLSearchParams({ q, live, offset: from, limit: PAGE });
  const found = await attempt(() => getJSON(`v1/labels?${wanted}`, { signal: nextSignal() }));
  if (found) show(found);
}

function show({ total, offset, labels }) {
  $("#label-list").replaceChildren(...labels.map(row));
  $("#label-count").textContent = total ? range(total, offset, labels.length) : nothing();
  $("#pages").hidden = total <= PAGE;
  $("#earlier").disabled = offset === 0;
  $("#later").disabled = offset + labels.length >= total;
}

function range(total, offset, count) {
  const all = counted(total, "label");
  return total > count ? `${number(offset + 1)}–${number(offset + count)} of ${all}` : all;
}

function nothing() {
  const { q, live } = state();
  if (q) return "No label has these words.";
  return live ? "Nothing was changed here yet." : "This model has no labels.";
}

function row(label) {
  const open = () => change({ label: label.id }, { push: true });
  const main = h("button.row", { "data-testid": "label", "data-id": label.id, onclick: open },
    h("span.row-text", label.text || label.id), badges(label),
    h("code.id", label.id),
    h("span.figure", counted(label.frequency, "document")));
  const restore = () => bringBack(label);
  const back = label.hidden && h("button.quiet", { "data-testid": "restore", onclick: restore }, "Bring back");
  return h("li", main, back);
}

async function add(event) {
  event.preventDefault();
  const id = $("#add-id").value.trim();
  const text = $("#add-text").value.trim();
  $("#add-button").disabled = true;
  await attempt(async () => {
    const isNew = await putLabel(id, text);
    say(isNew ? `“${text}” is predicted from now on.` : `Label ${id} was there; its text is now “${text}”.`);
    event.target.reset();
    $("#add-id").focus();
  });
  $("#add-button").disabled = false;
}

/** Fetches the changes rather than following the link, which could not carry a key. */
async function exportChanges(event) {
  event.preventDefault();
  await attempt(async () => {
    const changes = await (await call("v1/changes")).text();
    if (changes) saveFile("changes.ndjson", changes, "application/x-ndjson");
    else say("Nothing was changed here yet.");
  });
}
