// Small helpers to build the page. Text goes in as text only: nothing here reads HTML.

export const $ = (selector, within = document) => within.querySelector(selector);

/** An element with classes, attributes (may be left out) and children: h("button.quiet", { onclick: go }, "Go"). */
export const h = (name, ...given) => made((tag) => document.createElement(tag), name, given);

export const svg = (name, ...given) =>
  made((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag), name, given);

export const icon = (name) => svg("svg", { "aria-hidden": "true" }, svg("use", { href: `#i-${name}` }));

function made(create, name, [first, ...others]) {
  const [tag, ...classes] = name.split(".");
  const element = create(tag);
  if (classes.length) element.classList.add(...classes);
  const named = first?.constructor === Object;
  if (named) setAttributes(element, first);
  const children = (named ? others : [first, ...others]).flat();
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "css") setProperties(element, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
}

/** Custom properties for the style sheet; style attributes are barred by the content security policy. */
export function setProperties(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
}

export const bar = (share) => h("span.bar", { css: { "--share": share }, "aria-hidden": "true" });

export function badges({ live, hidden }) {
  if (hidden) return [h("span.badge.away", { "data-testid": "hidden-badge", title: "Never predicted" }, "hidden")];
  return live ? [h("span.badge", { "data-testid": "live-badge", title: "Added or changed here" }, "live")] : [];
}

export function debounced(wait, action) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), wait);
  };
}

/** Offers text or a blob to the browser as a file to keep. */
export function saveFile(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

/** A number as people write it, – for none; what is no number stays as it is. */
export function number(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" ? plain.format(value) : String(value ?? "–");
}

export const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
export const percent = (share) => (share > 0 && share < 0.001 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`);
export const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export function bytes(count) {
  const step = Math.min(4, Math.floor(Math.log10(Math.max(count, 1)) / 3));
  return `${number(count / 1000 ** step)} ${["bytes", "kB", "MB", "GB", "TB"][step]}`;
}
