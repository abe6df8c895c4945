// One small message at a time at the foot of the page.

import { $ } from "./dom.js";

const box = $("#message");
const words = $("span", box);
const button = $("[data-role=action]", box);
let topic = null;
let timer;

/** Shows a message; action is { name, run } for a button beside it. A message that lasts stays until it is hushed. */
export function say(text, { about = "event", lasts = false, action = null } = {}) {
  topic = about;
  words.textContent = text;
  button.hidden = action === null;
  button.textContent = action?.name ?? "";
  button.onclick = () => {
    hush();
    action.run();
  };
  box.hidden = false;
  clearTimeout(timer);
  if (!lasts) timer = setTimeout(hush, 10_000);
}

/** Takes the message away; with a topic, only if it is about that. */
export function hush(about = topic) {
  if (about === topic) box.hidden = true;
}

$("[data-role=dismiss]", box).addEventListener("click", () => hush());
