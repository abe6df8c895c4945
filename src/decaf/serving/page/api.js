// Calls to the server: keys, refusals, and patience while it is away.

import { $ } from "./dom.js";
import { hush, say } from "./messages.js";

const PATIENCE = 5; // tries, where the server answers but is busy; one that is away or loading is waited for
const LONGEST_PAUSE = 8_000;

/** The server's refusal, as it words it. */
export class Problem extends Error {
  constructor({ status, code, detail, title }, pause = null) {
    super(detail ?? title ?? `the server answered ${status}`);
    Object.assign(this, { status, code, pause });
  }

  static async from(response) {
    const facts = await response.json().catch(() => ({}));
    return new Problem({ ...facts, status: response.status }, 1000 * Number(response.headers.get("Retry-After")));
  }
}

const AWAY = new Problem({ status: 0, code: "away", detail: "The server does not answer" });

/** Sends a request until it is answered; quiet ones neither ask for a key nor try again. */
export async function call(path, { quiet = false, signal, ...request } = {}) {
  for (let tries = 1; ; tries++) {
    const key = sessionStorage.getItem("decaf-key");
    const { response, problem } = await send(path, request, key, signal);
    if (!problem) {
      hush("away");
      return response;
    }
    if (quiet) throw problem;
    if (problem.status === 401) {
      if (!(await otherKey(key))) throw problem;
    } else {
      if (!passing(problem, tries)) throw problem;
      say(`${problem.message}; trying again …`, { about: "away", lasts: true });
      await pause(problem.pause || Math.min(LONGEST_PAUSE, 250 * 2 ** tries), signal);
    }
  }
}

export const getJSON = async (path, options) => (await call(path, options)).json();

export function postJSON(path, body, options) {
  return getJSON(path, { method: "POST", ...asJSON(body), ...options });
}

/** Does some work; a refusal becomes a message and undefined. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.name === "AbortError") return undefined; // a later question replaced this one
    say(error.message);
    return undefined;
  }
}

/** A source of signals for calls of one kind: each new signal drops the call before. */
export function latest() {
  let current = new AbortController();
  return () => {
    current.abort();
    current = new AbortController();
    return current.signal;
  };
}

export const labelPath = (id) => `v1/labels/${encodeURIComponent(id)}`;

/** Adds a label, changes its text or brings it back -> whether it is new. */
export async function putLabel(id, text) {
  const response = await call(labelPath(id), { method: "PUT", ...asJSON({ text }) });
  document.dispatchEvent(new Event("labels-changed"));
  return response.status === 201;
}

export async function deleteLabel(id) {
  await call(labelPath(id), { method: "DELETE" });
  document.dispatchEvent(new Event("labels-changed"));
}

const asJSON = (body) => ({ body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

async function send(path, request, key, signal) {
  const headers = key ? { ...request.headers, Authorization: `Bearer ${key}` } : request.headers;
  try {
    const response = await fetch(path, { ...request, headers, signal });
    return response.ok ? { response } : { problem: await Problem.from(response) };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return { problem: AWAY }; // fetch fails like this only when no answer comes back
  }
}

function passing({ code, status }, tries) {
  if (code === "away" || code === "not_ready") return true;
  return (status === 429 || status === 503) && tries < PATIENCE;
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

let asking = null; // calls that are refused while the dialog is open wait for the same key

/** Whether there is now another key than the one that was refused. */
function otherKey(refused) {
  if (sessionStorage.getItem("decaf-key") !== refused) return true;
  asking ??= askForKey(refused).finally(() => (asking = null));
  return asking;
}

function askForKey(refused) {
  const dialog = $("#key-dialog");
  const input = $("#key-input");
  $("#key-detail").textContent = refused
    ? "The key was not accepted for this. Is there another one?"
    : "The server answers only with a key.";
  input.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    dialog.addEventListener(
      "close",
      () => {
        const given = dialog.returnValue === "use";
        if (given) sessionStorage.setItem("decaf-key", input.value);
        resolve(given);
      },
      { once: true },
    );
  });
}
