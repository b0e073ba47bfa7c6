"use strict";

/* The page asks for the whole text after every change; what was computed before comes back at once. An answer is a
   stream of lines: the words, then surprisals and cards of models as they are computed. A new request ends the old one. */

const get = (id) => document.getElementById(id);
const panels = new Map([...document.querySelectorAll("[data-panel]")].map((one) => [one.dataset.panel, one]));
const boxes = [...document.querySelectorAll(".models input")];
const rows = new Map([...document.querySelectorAll("#bars tbody tr")].map((one) => [Number(one.dataset.run), one]));
const MARGINS = 34; // pixels left and right of a drawing in its card
const narrow = matchMedia("(max-width: 40rem)");
const PAUSE = 250; // milliseconds after which a word that no space has ended is read

let sentences = [];
let at = [0, -1]; // the sentence in view and the word after which the models are looked at
let chosen = null; // the same, if it was chosen; null: the last word
let bits = new Map(); // "run sentence word" -> what was answered
let current = null; // the request that is being answered
let timer = 0;
let missing = []; // models of the address that this server does not have

function request() {
  const runs = boxes.filter((box) => box.checked).map((box) => Number(box.value));
  return { text: get("text").value, runs, at: chosen };
}

async function post(body, signal) {
  const answer = await fetch("read", {
    method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" }, signal,
  });
  if (!answer.ok) throw new Error((await answer.text()) || `the server said ${answer.status}`);
  return answer;
}

async function* lines(answer) {
  const decoder = new TextDecoder();
  let rest = "";
  for (const reader = answer.body.getReader(); ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = parts.pop();
    yield* parts;
  }
}

/* The view is in the address: what was typed, which models read it, and the word that was chosen. The part behind the
   # is never sent. */

function keepView() {
  const view = new URLSearchParams({ text: get("text").value });
  for (const box of boxes) if (box.checked) view.append("model", box.dataset.name);
  if (chosen) view.set("at", chosen.join("."));
  history.replaceState(null, "", `#${view}`);
}

function showView() {
  const view = new URLSearchParams(location.hash.slice(1));
  if (!view.has("text")) return;
  get("text").value = view.get("text");
  const names = view.getAll("model");
  for (const box of boxes) box.checked = names.includes(box.dataset.name);
  const at = (view.get("at") ?? "").split(".").map(Number);
  chosen = at.length === 2 && at.every(Number.isInteger) ? at : null;
  missing = names.filter((name) => !boxes.some((box) => box.dataset.name === name));
}

async function ask() {
  clearTimeout(timer);
  keepView();
  current?.abort();
  const own = (current = new AbortController());
  const body = request();
  showRuns(body.runs);
  get("surprisal").setAttribute("aria-busy", "true");
  try {
    for await (const line of lines(await post(body, own.signal))) {
      if (own.signal.aborted) return;
      const event = JSON.parse(line);
      answers[event.event](event);
    }
  } catch (error) {
    if (own.signal.aborted) return;
    say(error instanceof TypeError ? "treelm explore does not answer: has it ended?" : error.message);
  }
  get("surprisal").setAttribute("aria-busy", "false");
}

const answers = {
  text(event) {
    const before = sentences;
    sentences = event.sentences;
    at = event.at;
    const isKept = (key) => {
      const [, sentence, word] = key.split(" ").map(Number);
      const [old, now] = [before[sentence] ?? [], sentences[sentence] ?? []];
      return word < now.length && old.slice(0, word + 1).every((one, place) => one === now[place]);
    };
    bits = new Map([...bits].filter(([key]) => isKept(key)));
    showSentences();
    showWords();
    if (!sentences.length) say("Nothing has been typed yet.");
  },
  word(event) {
    bits.set(`${event.run} ${event.sentence} ${event.word}`, event);
    if (event.sentence === at[0]) showBits();
  },
  look(event) {
    for (const [name, panel] of panels) showCard(panel, event.run, event.cards[name]);
  },
  refused(event) {
    const why = rows.get(event.run).querySelector(".why") ?? document.createElement("small");
    why.className = "why";
    why.textContent = event.message;
    rows.get(event.run).querySelector(".name").append(why);
    rows.get(event.run).classList.add("refused");
    for (const panel of panels.values()) showCard(panel, event.run, undefined);
    say(`${boxes[event.run].dataset.name}: ${event.message}`);
  },
  done() {
    for (const panel of panels.values()) panel.classList.remove("waiting");
    const failed = document.querySelectorAll("#bars .refused:not([hidden])").length;
    const count = sentences.flat().length;
    const number = request().runs.length;
    const lacks = missing.length ? ` Not here: ${missing.join(", ")}.` : "";
    if (!failed) say(`Read: ${count} word${count === 1 ? "" : "s"} by ${number} model${number === 1 ? "" : "s"}.${lacks}`);
  },
};

function say(text) {
  get("status").textContent = text;
}

/* The frame. */

function showRuns(runs) {
  for (const [run, row] of rows) {
    row.hidden = !runs.includes(run);
    row.classList.remove("refused");
    row.querySelector(".why")?.remove();
  }
  for (const panel of panels.values()) {
    panel.classList.add("waiting");
    for (const card of [...panel.children]) if (!runs.includes(Number(card.dataset.run))) card.remove();
    showPanel(panel);
  }
}

function showSentences() {
  get("choice").hidden = sentences.length < 2;
  get("sentences").replaceChildren(...sentences.map((words, number) => {
    const button = make("button", words.join(" "), { type: "button" });
    if (number === at[0]) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => choose(number, words.length - 1));
    const item = document.createElement("li");
    item.append(button);
    return item;
  }));
}

function showWords() {
  const words = sentences[at[0]] ?? [];
  const buttons = [...document.querySelectorAll("#words button")];
  if (buttons.map((one) => one.textContent).join(" ") !== words.join(" ") || buttons.length !== words.length) {
    for (const row of [get("words"), ...rows.values()]) while (row.children.length > 1) row.lastChild.remove();
    get("words").append(...words.map(wordHead));
    for (const row of rows.values()) row.append(...words.map(() => document.createElement("td")));
    get("bars").style.setProperty("--words", words.length);
  }
  document.querySelectorAll("#words button").forEach((button, place) => {
    if (place === at[1]) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    button.tabIndex = place === at[1] ? 0 : -1;
  });
  const read = words.slice(0, at[1] + 1).join(" ");
  for (const after of document.querySelectorAll("h2 .after")) after.textContent = read ? `after \u201c${read}\u201d` : "";
  for (const panel of panels.values()) if (!words.length) panel.replaceChildren();
  for (const panel of panels.values()) showPanel(panel);
  get("bars").hidden = !words.length;
  get("save").disabled = !words.length;
  showBits();
  keepInView();
}

/* Scroll the surprisals, not the page, to the marked word; names of models cover the left. */
function keepInView() {
  const button = document.querySelector("#words button[aria-current]")?.getBoundingClientRect();
  if (!button) return;
  const scrolled = get("bars").parentElement;
  const [box, names] = [scrolled, get("words").firstElementChild].map((one) => one.getBoundingClientRect());
  if (button.right > box.right) scrolled.scrollLeft += button.right - box.right + 6;
  else if (button.left < names.right) scrolled.scrollLeft -= names.right - button.left + 6;
}

function wordHead(word, place) {
  const button = make("button", word, { type: "button" });
  button.addEventListener("click", () => choose(at[0], place));
  const head = make("th", "", { scope: "col" });
  head.append(button);
  return head;
}

function make(name, text, attributes) {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/* Surprisals and cards. */

function showBits() {
  const found = [...bits.values()].filter((one) => one.sentence === at[0] && one.bits !== null);
  get("bars").style.setProperty("--most", Math.max(1, ...found.map((one) => one.bits)));
  for (const [run, row] of rows) {
    row.querySelectorAll("td").forEach((cell, place) => {
      const one = bits.get(`${run} ${at[0]} ${place}`);
      cell.classList.toggle("now", place === at[1]);
      cell.classList.toggle("waits", !one && !row.classList.contains("refused"));
      const text = !one ? "" : one.impossible ? "\u221e" : one.bits === null ? "\u2013" : one.bits.toFixed(1);
      const shown = text + (one?.unknown ? "*" : "");
      if (cell.dataset.shown === shown && cell.dataset.word === String(place)) return;
      cell.dataset.shown = shown;
      cell.dataset.word = place;
      cell.title = one?.unknown ? `not known: read as ${one.unknown}` : "";
      const bar = document.createElement("i");
      bar.style.setProperty("--bits", one?.impossible ? 1e9 : (one?.bits ?? 0));
      cell.replaceChildren(...(shown ? [make("span", shown, {}), bar] : []));
    });
  }
}

function showCard(panel, run, html) {
  const old = [...panel.children].find((one) => Number(one.dataset.run) === run);
  if (html === undefined) old?.remove();
  else {
    const holder = document.createElement("template");
    holder.innerHTML = html;
    const card = holder.content.firstElementChild;
    if (old) old.replaceWith(card);
    else panel.insertBefore(card, [...panel.children].find((one) => Number(one.dataset.run) > run) ?? null);
    for (const box of card.querySelectorAll(".scrolled")) box.scrollLeft = box.scrollWidth; // to the last word
  }
  showPanel(panel);
}

function showPanel(panel) {
  const widths = [...panel.querySelectorAll("svg[width]")].map((svg) => svg.width.baseVal.value);
  if (widths.length) panel.style.setProperty("--narrowest", `${Math.max(240, ...widths) + MARGINS}px`);
  panel.closest("section").hidden = !panel.children.length;
}

/* What a person does. */

function choose(sentence, word) {
  const isLast = sentence === sentences.length - 1 && word === sentences[sentence].length - 1;
  chosen = isLast ? null : [sentence, word];
  at = [sentence, word];
  showSentences();
  showWords();
  ask();
}

get("text").addEventListener("input", () => {
  chosen = null;
  clearTimeout(timer);
  if (/(^|[\s.,;:?!])$/.test(get("text").value)) ask();
  else timer = setTimeout(ask, PAUSE);
});

get("words").addEventListener("keydown", (event) => {
  const last = (sentences[at[0]] ?? []).length - 1;
  const to = { ArrowLeft: at[1] - 1, ArrowRight: at[1] + 1, Home: 0, End: last }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  choose(at[0], Math.min(Math.max(to, 0), last));
  const button = document.querySelector("#words button[aria-current]");
  button?.focus({ preventScroll: true });
});

for (const box of boxes) box.addEventListener("change", ask);

/* Where there is room for all parts they are open, else one at a time: details of one name close each other. */
function fold() {
  for (const part of document.querySelectorAll("section > details")) {
    if (narrow.matches) part.setAttribute("name", "part");
    else part.removeAttribute("name");
    part.querySelector("[data-panel]").tabIndex = narrow.matches ? 0 : -1; // it scrolls, by keys too
    part.open = !narrow.matches || part.closest("section").id === "panel-next";
  }
}
narrow.addEventListener("change", fold);
fold();

for (const example of document.querySelectorAll(".example")) {
  example.addEventListener("click", () => {
    get("text").value = example.textContent;
    chosen = null;
    ask();
  });
}

get("form").addEventListener("submit", (event) => event.preventDefault());

/* The drawings of all cards as one file, each below its title. */

get("save").addEventListener("click", () => {
  let [width, height] = [0, 0];
  const parts = [...document.querySelectorAll("[data-panel] svg[width]")].map((drawing) => {
    const [title, copy] = [document.createElementNS(drawing.namespaceURI, "text"), drawing.cloneNode(true)];
    title.textContent = drawing.querySelector("title").textContent;
    for (const [name, value] of Object.entries({ x: 12, y: height + 20 })) title.setAttribute(name, value);
    copy.setAttribute("y", height + 28);
    width = Math.max(width, drawing.width.baseVal.value);
    height += drawing.height.baseVal.value + 36;
    return [title, copy].map((one) => new XMLSerializer().serializeToString(one)).join("");
  });
  if (!parts.length) return say("Nothing to save: these models draw nothing of this sentence.");
  const style = `<style>${get("style").innerHTML}</style><rect class="background" width="100%" height="100%"/>`;
  const file = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">${style}${parts.join("")}</svg>`;
  const url = URL.createObjectURL(new Blob([file], { type: "image/svg+xml" }));
  make("a", "", { href: url, download: "read-along.svg" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
});

addEventListener("hashchange", () => {
  showView();
  ask();
});
showView();
if (get("text").value) ask(); // of the address, or what a browser kept of before
