// The panel that predicts a whole CSV file.

import { wishes } from "./answers.js";
import { attempt, call, latest, Problem } from "./api.js";
import { $, bytes, counted, h, percent, saveFile } from "./dom.js";
import { currentModel } from "./model.js";
import { watch } from "./state.js";

const PREVIEW = 10; // rows
const ANSWER = /^(label_\d+(_text)?|score_\d+)$/; // columns that the server adds

const input = $("#csv-input");
const drop = $("#drop");
const result = $("#csv-result");
const nextSignal = latest();

export function start() {
  input.addEventListener("change", () => {
    if (input.files.length) predictFile(input.files[0]);
    input.value = ""; // so that the same file can be chosen again
  });
  for (const kind of ["dragover", "dragleave", "drop"]) drop.addEventListener(kind, dragged);
  watch(["top", "threshold"], showHint);
  document.addEventListener("model-loaded", showHint);
}

function dragged(event) {
  event.preventDefault();
  drop.classList.toggle("over", event.type === "dragover");
  const [file] = event.dataTransfer.files;
  if (event.type === "drop" && file) predictFile(file);
}

function showHint() {
  const { top, threshold } = wishes();
  const largest = currentModel()?.limits.body_bytes;
  const least = threshold > 0 ? `, at least ${percent(threshold)} likely` : "";
  const limit = largest ? ` At most ${bytes(largest)}.` : "";
  $("#csv-hint").textContent = `Up to ${counted(top, "label")} for each row${least}, as set under Try.${limit}`;
}

async function predictFile(file, column = "") {
  const signal = nextSignal();
  drop.setAttribute("aria-busy", "true");
  const content = await file.text();
  const [columns = []] = parseCSV(content, 1, delimiterOf(content));
  const { top, threshold, tail } = wishes();
  const wanted = new URLSearchParams({ top, threshold, tail: tail ?? "", column });
  const predicted = await attempt(async () => {
    const request = { method: "POST", body: checked(file), headers: { "Content-Type": "text/csv" }, signal };
    return (await call(`v1/predict/csv?${wanted}`, request)).text();
  });
  if (signal.aborted) return;
  drop.removeAttribute("aria-busy");
  const head = h("div.file-head", h("h2", file.name), columnChoice(file, column, columns));
  result.replaceChildren(head, ...(predicted ? outcome(file, predicted) : [])); // another column may do
}

/** A file too large would be cut off by the server in mid-flight, which looks like a server that is away. */
function checked(file) {
  const largest = currentModel()?.limits.body_bytes ?? Infinity;
  if (file.size <= largest) return file;
  const detail = `${file.name} has ${bytes(file.size)}; at most ${bytes(largest)} go at once. Cut it up.`;
  throw new Problem({ detail });
}

function outcome(file, predicted) {
  const [header, ...rows] = parseCSV(predicted, Infinity);
  const name = file.name.replace(/(\.csv)?$/i, "-predicted.csv");
  const save = () => saveFile(name, predicted, "text/csv");
  const some = rows.length > PREVIEW ? `, the first ${PREVIEW} are shown` : "";
  return [
    h("div.file-head",
      h("p.hint", { role: "status" }, `${counted(rows.length, "row")}${some}`),
      h("button.main", { id: "csv-download", onclick: save }, "Download")),
    h("div.scroll", preview(header, rows.slice(0, PREVIEW))),
  ];
}

function columnChoice(file, column, columns) {
  const option = (value, name) => h("option", { value, selected: value === column && "" }, name);
  const named = columns.map((name) => option(name, name));
  const choice = h("select", { id: "csv-column" }, option("", "found by itself"), named);
  choice.addEventListener("change", () => predictFile(file, choice.value));
  return h("label", "Text in ", choice);
}

/** The file's own columns as they are, and the labels of each row in one cell. */
function preview(header, rows) {
  const own = header.map((_, at) => at).filter((at) => !ANSWER.test(header[at]));
  const texts = header.map((_, at) => at).filter((at) => /^label_\d+_text$/.test(header[at]));
  const labels = (row) => texts.filter((at) => row[at - 1]).map((at) =>
    h("li", h("span", row[at] || row[at - 1]), h("span.figure", percent(Number(row[at + 1])))));
  return h("table.preview",
    h("thead", h("tr", own.map((at) => h("th", { scope: "col" }, header[at])), h("th", { scope: "col" }, "labels"))),
    h("tbody", rows.map((row) => h("tr", { "data-testid": "csv-row" },
      own.map((at) => h("td", row[at])), h("td", h("ol", labels(row)))))));
}

/** What parts the cells of a file: the one that its first line has most of, as the server sees it. */
function delimiterOf(text) {
  const [line] = text.split("\n", 1);
  const count = (delimiter) => line.split(delimiter).length;
  return [",", ";", "\t"].reduce((best, one) => (count(one) > count(best) ? one : best));
}

/** The first rows of a CSV text: quotes, doubled quotes and line breaks inside quotes are understood. */
function parseCSV(text, most, delimiter = ",") {
  const cell = new RegExp(String.raw`("(?:[^"]+|"")*"|[^${delimiter}\r\n]*)(${delimiter}|\r?\n|$)`, "gy");
  const rows = [[]];
  cell.lastIndex = text.startsWith("\ufeff") ? 1 : 0;
  while (cell.lastIndex < text.length) {
    const match = cell.exec(text);
    if (!match) break;
    const [, raw, end] = match;
    rows.at(-1).push(raw.startsWith('"') ? raw.slice(1, -1).replaceAll('""', '"') : raw);
    if (end === delimiter) continue;
    if (rows.length === most) break;
    rows.push([]);
  }
  return rows.filter((row) => row.length > 0);
}
