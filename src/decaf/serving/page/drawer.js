// The drawer: one label, its neighbours, and what can be done with it.

import { type } from "./answers.js";
import { attempt, deleteLabel, getJSON, labelPath, putLabel } from "./api.js";
import { $, badges, bar, counted, h, icon } from "./dom.js";
import { say } from "./messages.js";
import { change, state, watch } from "./state.js";

const drawer = $("#drawer");
const narrow = matchMedia("(max-width: 720px)"); // there it covers the page
let opener = null; // what had the focus before

export const close = () => change({ label: null }, { push: true });

export function start() {
  watch(["label"], follow);
  document.addEventListener("labels-changed", () => state().label !== null && load());
  if (state().label !== null) follow(state());
}

async function follow({ label }) {
  if (label === null) return leave();
  if (drawer.hidden) opener = document.activeElement;
  await load();
  if (!drawer.hidden) drawer.focus();
}

async function load() {
  const { label: id } = state();
  const label = await attempt(() => getJSON(labelPath(id)));
  if (state().label !== id) return; // another one was opened meanwhile
  if (!label) return change({ label: null });
  const focused = drawer.contains(document.activeElement);
  drawer.replaceChildren(...contents(label));
  drawer.scrollTop = 0;
  setOpen(true);
  if (focused) drawer.focus(); // what had the focus is gone
}

function leave() {
  setOpen(false);
  drawer.replaceChildren();
  if (opener?.isConnected) opener.focus();
}

function setOpen(open) {
  drawer.hidden = !open;
  document.body.classList.toggle("beside-drawer", open);
  $("main").inert = open && narrow.matches;
}

function contents(label) {
  const closer = h("button.icon", { "aria-label": "Close", onclick: close }, icon("close"));
  return [
    h("div.drawer-head", h("code.id", label.id), badges(label), closer),
    h("h2", label.text || "Without text"),
    h("p.hint", label.frequency ? `In ${counted(label.frequency, "training document")}` : "In no training document"),
    h("div.actions", actions(label)),
    h("h3", "Nearest labels"),
    label.neighbours.length ? h("ul.neighbours", label.neighbours.map(neighbour)) : h("p.hint", "None."),
  ];
}

function neighbour({ id, text, similarity }) {
  const go = () => change({ label: id }, { push: true });
  return h("li", h("button.row", { "data-testid": "neighbour", "data-id": id, onclick: go },
    h("span.row-text", text || id), h("span.figure", similarity.toFixed(2)), bar(Math.max(0, similarity))));
}

function actions(label) {
  const button = (name, testid, onclick) => h("button.quiet", { "data-testid": testid, onclick }, name);
  if (label.hidden) return [button("Bring back", "restore", () => bringBack(label))];
  return [
    label.text && button("Use as text", "use-as-text", () => type(label.text)),
    button("Change text", "edit", (event) => event.target.parentElement.replaceWith(editor(label))),
    button(label.live && !label.frequency ? "Remove" : "Hide", "hide", () => hide(label)),
  ];
}

function editor({ id, text }) {
  const facts = { value: text ?? "", required: "", "aria-label": "Text of the label", "data-testid": "edit-text" };
  const input = h("input", facts);
  const save = (event) => {
    event.preventDefault();
    attempt(() => putLabel(id, input.value));
  };
  const form = h("form.actions", { onsubmit: save }, input, h("button.main", "Save"));
  queueMicrotask(() => input.focus());
  return form;
}

export const bringBack = ({ id, text }) => attempt(() => putLabel(id, text));

async function hide(label) {
  if (label.live && !label.frequency) close(); // an added label will be gone
  await attempt(async () => {
    await deleteLabel(label.id);
    say(`“${label.text}” is not predicted any more.`, { action: { name: "Undo", run: () => bringBack(label) } });
  });
}
