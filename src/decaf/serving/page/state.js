// What the page shows is kept in the address behind the #, so that it can be shared and the back button works.

const TABS = ["try", "labels", "file", "model"];

const within = (least, most) => (written) => {
  const value = Number(written);
  return value >= least && value <= most ? value : undefined; // undefined: the default stands
};

const DEFAULTS = {
  tab: "try",
  text: "",
  top: 5,
  threshold: 0,
  tail: null, // as the model was made
  label: null, // the one in the drawer
  q: "",
  live: false,
  from: 0, // first row of the label list
};

const READERS = {
  tab: (written) => (TABS.includes(written) ? written : undefined),
  top: within(1, 100),
  threshold: within(0, 1),
  tail: within(0, 1),
  live: (written) => written === "true",
  from: within(0, Infinity),
};

const watchers = [];
let current = read();

export const state = () => current;

/** Calls react(now, before) whenever one of the named fields changes, by the page or by the back button. */
export function watch(names, react) {
  watchers.push({ names, react });
}

/** Changes some fields; a pushed change can be taken back with the back button, others are merely noted. */
export function change(fields, { push = false } = {}) {
  const next = { ...current, ...fields };
  const address = written(next);
  if (address === written(current)) return;
  history[push ? "pushState" : "replaceState"](null, "", address);
  settle(next);
}

function settle(next) {
  const before = current;
  current = next;
  for (const { names, react } of watchers) {
    if (names.some((name) => before[name] !== next[name])) react(next, before);
  }
}

function read() {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const fields = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS)) {
    if (name in given) fields[name] = (READERS[name] ?? String)(given[name]) ?? DEFAULTS[name];
  }
  return fields;
}

function written(fields) {
  const kept = Object.entries(fields).filter(([name, value]) => value !== DEFAULTS[name]);
  return `#${new URLSearchParams(kept)}`;
}

addEventListener("popstate", () => settle(read()));
