// The page of DECAF: ties the panels together. Each panel has a module of its own.

import * as answers from "./answers.js";
import { $ } from "./dom.js";
import * as drawer from "./drawer.js";
import * as file from "./file.js";
import * as labels from "./labels.js";
import * as model from "./model.js";
import { change, state, watch } from "./state.js";

const tabs = [...document.querySelectorAll("[role=tab]")];

function showTab({ tab }) {
  for (const button of tabs) {
    const chosen = button.dataset.tab === tab;
    button.setAttribute("aria-selected", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
    $(`#panel-${button.dataset.tab}`).hidden = !chosen;
  }
}

/** Arrows go round the tabs, as is the custom. */
function moveAmongTabs(event) {
  const here = tabs.indexOf(document.activeElement);
  const goal = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: -1 }[event.key];
  if (goal === undefined) return;
  event.preventDefault();
  const tab = tabs.at(goal % tabs.length);
  tab.focus();
  tab.click();
}

function shortcuts(event) {
  if ($("#key-dialog").open) return;
  if (event.key === "Escape" && state().label !== null) drawer.close();
  if (event.key === "/" && !event.target.closest("input, textarea, select")) {
    event.preventDefault();
    change({ tab: "try" }, { push: true });
    $("#text").focus();
  }
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("decaf-theme", root.dataset.theme);
}

async function start() {
  for (const tab of tabs) tab.addEventListener("click", () => change({ tab: tab.dataset.tab }, { push: true }));
  $("[role=tablist]").addEventListener("keydown", moveAmongTabs);
  $("#theme").addEventListener("click", switchTheme);
  $("#key-cancel").addEventListener("click", () => $("#key-dialog").close());
  document.addEventListener("keydown", shortcuts);
  watch(["tab"], showTab);
  showTab(state());
  for (const panel of [answers, labels, drawer, file, model]) panel.start();
  const known = await model.loadModel(); // first, since it says what may be asked for
  await answers.predict(); // a text that is there already goes before the examples
  if (known) await answers.showExamples();
}

start();
