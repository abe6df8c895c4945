// Why a label was predicted: the words of the text that carried it, and the parts of its score.

import { h, signed } from "./dom.js";

// Words are cut as the model cuts them: at camel case, digits and punctuation; Han and emoji one by one.
const CASED = String.raw`\p{Lu}{2,}s(?!\p{Ll})|\p{Lu}+(?!\p{Ll})|\p{Lu}?\p{Ll}+|\p{Nd}+`;
const ALONE = String.raw`[\p{Script=Han}\p{Extended_Pictographic}]`;
const UNCASED = String.raw`(?!\p{Script=Han})[\p{Lo}\p{Lm}\p{Lt}](?:(?!\p{Script=Han})[\p{Lo}\p{Lm}\p{Lt}\p{M}])*`;
const WORD = new RegExp([CASED, ALONE, UNCASED].join("|"), "gu");

export function explanation(text, { parts, tokens }) {
  const some = (values) => Object.keys(values).length > 0;
  return h("div.why", { "data-testid": "why" },
    h("h3", "Words"),
    some(tokens) ? wordsShown(text, new Map(Object.entries(tokens))) : h("p.hint", "No word of the text is known."),
    h("h3", "Parts of the score"),
    some(parts) ? partsShown(parts) : h("p.hint", "This label's score cannot be taken apart."));
}

function wordsShown(text, tokens) {
  const most = largest(tokens.values());
  const spans = locate(text, tokens);
  const found = new Set(spans.map((span) => span.token));
  const lost = [...tokens.keys()].filter((token) => !found.has(token));
  return [
    h("p.marked", segments(text, spans).map((segment) => highlight(segment, most))),
    lost.length > 0 && h("p.chips", lost.map((token) => chip(token, tokens.get(token), most))),
    h("p.legend", { "aria-hidden": "true" },
      h("span.up", "raises"), h("span.down", "lowers"), h("span.together", "as a pair")),
    h("p.unseen", [...tokens].map(([token, weight]) => `${token} ${signed(weight)}`).join(", ")),
  ];
}

function highlight({ text, spans }, most) {
  if (!spans.length) return text;
  const piece = spans.find((span) => !span.pair);
  const pair = spans.find((span) => span.pair);
  const title = spans.map((span) => `${span.token} ${signed(span.weight)}`).join("\n");
  const tones = [piece && toneOf(piece.weight), pair && `pair-${toneOf(pair.weight)}`];
  return h("mark", {
    class: tones.filter(Boolean).join(" "),
    "data-testid": "highlight",
    title,
    css: { "--strength": strength(piece?.weight, most), "--pair-strength": strength(pair?.weight, most) },
  }, text);
}

function chip(token, weight, most) {
  const css = { "--strength": strength(weight, most) };
  return h(`span.chip.${toneOf(weight)}`, { css }, token, " ", h("small", signed(weight)));
}

const toneOf = (weight) => (weight < 0 ? "down" : "up");
const strength = (weight = 0, most) => Math.abs(weight) / most;
const largest = (values) => Math.max(...[...values].map(Math.abs)) || 1;

/** Where the tokens stand in the text: [{ token, weight, start, end, pair }], in characters of the text. */
function locate(text, tokens) {
  const { folded, origin } = fold(text);
  const words = [...folded.matchAll(WORD)].map((match) => ({ word: match[0].toLowerCase(), at: match.index }));
  const spans = [];
  const add = (token, start, end, pair) =>
    spans.push({ token, weight: tokens.get(token), start: origin[start], end: origin[end], pair });
  words.forEach(({ word, at }, place) => {
    for (const { token, start, end } of pieces(word, tokens)) add(token, at + start, at + end, false);
    const next = words[place + 1];
    const pair = next && `${word} ${next.word}`;
    if (tokens.has(pair)) add(pair, at, next.at + next.word.length, true);
  });
  return spans;
}

/** The tokens that make up a word, each as long as can be, as WordPiece takes them. */
function pieces(word, tokens) {
  const found = [];
  for (let start = 0; start < word.length; ) {
    let end = word.length;
    const named = () => (start ? "##" : "") + word.slice(start, end);
    while (end > start && !tokens.has(named())) end--;
    if (end > start) found.push({ token: named(), start, end });
    start = Math.max(end, start + 1);
  }
  return found;
}

/** The text without accents and compatibility forms, and where each of its characters came from. */
function fold(text) {
  let folded = "";
  const origin = [];
  let at = 0;
  for (const character of text) {
    const bare = character.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").normalize("NFC");
    for (let unit = 0; unit < bare.length; unit++) origin.push(at);
    folded += bare;
    at += character.length;
  }
  return { folded, origin: [...origin, at] };
}

/** Cuts the text where a span begins or ends -> [{ text, spans }]. */
function segments(text, spans) {
  const cuts = [...new Set([0, text.length, ...spans.flatMap(({ start, end }) => [start, end])])].sort((a, b) => a - b);
  return cuts.slice(1).map((end, place) => {
    const start = cuts[place];
    return { text: text.slice(start, end), spans: spans.filter((span) => span.start <= start && span.end >= end) };
  });
}

function partsShown(parts) {
  const most = largest(Object.values(parts));
  const rows = Object.entries(parts).map(([name, value]) => {
    const share = value / most / 2; // of the whole width; zero is in the middle
    const css = { "--from": 0.5 + Math.min(share, 0), "--size": Math.abs(share) };
    return h("tr", { "data-testid": "part" },
      h("th", { scope: "row" }, name),
      h("td", { "aria-hidden": "true" }, h(`span.part-bar.${toneOf(value)}`, { css })),
      h("td.figure", signed(value)));
  });
  return h("table.parts", h("caption.unseen", "Against the mean of the labels looked at"), h("tbody", rows));
}
