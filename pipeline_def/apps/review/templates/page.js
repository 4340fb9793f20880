// Uses the API of this server, like any script. Decides nothing by itself: what is shown as decided
// is on disk.
const AHEAD = 5;
const FEW_LABELS = 10;
const MOST_CHOICES = 50;
const POLL_SECONDS = 3;
const DONE = { keep: "Kept", relabel: "Relabeled to", remove: "Removed", unsure: "Unsure" };
const KEYS = {
  k: "keep", r: "relabel", l: "other", x: "remove", Delete: "remove", u: "unsure", z: "undo",
  Backspace: "undo", ArrowLeft: "back", ArrowRight: "forward", n: "note", g: "together",
};
const find = id => document.getElementById(id);
const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 0 });
let facts = { images: [], labels: [], words: {} };
let decisions = {};
let version = "";
// Numbers of the images that match the filters, and the place among them.
let chosen = [];
let place = 0;
// Digests in the order in which this page has decided, those decided at once together.
const made = [];
// Actions run one after the other, each on the image that is visible by then.
let queue = Promise.resolve();
let visible = Promise.resolve();
const neighbors = new Map();
const loaded = new Map();

async function ask(path, body) {
  const request = body && {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, request);
  } catch {
    throw new Error("The server cannot be reached. Decisions until now are saved; start it again.");
  }
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.error ?? `The server returned status ${answer.status}.`);
  return said;
}

function say(text, isBad = false) {
  find("status").textContent = text;
  find("status").className = isBad ? "bad" : "";
}

function make(kind, text = "", className = "") {
  const element = document.createElement(kind);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

const current = () => facts.images[chosen[place]];
const pictureOf = (image, size) => `/api/pictures/${image.sha256}?size=${size}`;

const odds = score => score > .99 ? "over 99%" : percent.format(score);

function labelOf(number) {
  return number < 0 ? "" : facts.labels[number];
}

function filter(keep) {
  const [reason, label, state] = ["reason", "label", "state"].map(id => find(id).value);
  chosen = [...facts.images.keys()].filter(number => {
    const image = facts.images[number];
    const isDecided = image.sha256 in decisions;
    return (!reason || image.reasons.some(([name]) => name === reason))
      && (!label || [image.label, image.proposed].includes(Number(label)))
      && (state === "all" || (state === "decided") === isDecided);
  });
  const kept = chosen.findIndex(number => facts.images[number].sha256 === keep);
  const open = chosen.findIndex(number => !(facts.images[number].sha256 in decisions));
  place = Math.max(kept >= 0 ? kept : open, 0);
  show();
}

function load(image) {
  if (!loaded.has(image.sha256)) {
    const picture = new Image();
    picture.src = pictureOf(image, "large");
    loaded.set(image.sha256, picture.decode().then(() => picture));
    loaded.get(image.sha256).catch(() => {});
    // The browser holds the pixels of these: as many as lie around the current one.
    if (loaded.size > 4 * AHEAD) loaded.delete(loaded.keys().next().value);
  }
  return loaded.get(image.sha256);
}

async function showPicture(image) {
  const picture = find("picture");
  // Never the old picture beside new labels.
  picture.hidden = true;
  find("missing").textContent = "";
  const waiting = setTimeout(() => { find("missing").textContent = "Loading …"; }, 150);
  try {
    const { src, naturalWidth: width, naturalHeight: height } = await load(image);
    if (image !== current()) return;
    picture.src = src;
    picture.alt = `Image ${image.path}`;
    picture.className = Math.max(width, height) <= 160 ? "tiny" : "";
    picture.hidden = false;
    find("missing").textContent = "";
  } catch {
    loaded.delete(image.sha256);
    const why = await ask(pictureOf(image, "large"))
      .then(() => "The browser cannot show this picture.", error => error.message);
    if (image === current()) find("missing").textContent = why;
  } finally {
    clearTimeout(waiting);
  }
  for (const next of chosen.slice(place + 1, place + 1 + AHEAD)) load(facts.images[next]);
}

async function showNeighbors(image) {
  find("similar").hidden = !image.neighbors;
  find("neighbors").replaceChildren();
  if (!image.neighbors) return;
  if (!neighbors.has(image.sha256)) {
    neighbors.set(image.sha256, ask(`/api/images/${image.sha256}/neighbors`));
  }
  const said = await neighbors.get(image.sha256).catch(() => ({ neighbors: [] }));
  if (image !== current()) return;
  find("neighbors").replaceChildren(...said.neighbors.map(one => {
    const item = make("li");
    const caption = make("bdi", one.label || one.path);
    caption.title = one.path;
    if (one.sha256) {
      const picture = new Image();
      picture.alt = `Similar image ${one.path}`;
      picture.src = pictureOf(one, "small");
      item.append(picture);
    }
    item.append(caption);
    return item;
  }));
}

function show() {
  const image = current();
  find("main").hidden = !image;
  showProgress();
  if (!image) {
    say("No image matches these filters.");
    return;
  }
  history.replaceState(null, "", `#${image.sha256}`);
  const [given, proposed] = [labelOf(image.label), labelOf(image.proposed)];
  find("place").textContent = `${[`${place + 1} of ${chosen.length}`, image.split].filter(Boolean).join(" · ")} ·`;
  find("path").textContent = image.path;
  const reasons = image.reasons.map(([reason, score]) =>
    [reason === "label" ? "Probability that the label is wrong" : facts.words[reason] ?? reason, odds(score)]);
  find("reasons").replaceChildren(...reasons.map(([words, score]) => {
    const item = make("li", `${words} `);
    item.append(make("span", score, "score"));
    return item;
  }));
  find("given").textContent = find("kept").textContent = given;
  find("proposed").textContent = find("target").textContent = proposed;
  const differs = proposed && proposed !== given;
  find("proposal").hidden = !differs;
  document.querySelector("[data-act=relabel]").hidden = !differs;
  document.querySelector("[data-act=back]").disabled = place === 0;
  document.querySelector("[data-act=forward]").disabled = place >= chosen.length - 1;
  showDecision(image);
  say("");
  visible = showPicture(image);
  showNeighbors(image);
  const why = reasons.map(([words, score]) => `${words}, ${score}`).join(". ");
  find("spoken").textContent = `Image ${place + 1} of ${chosen.length}. ${why}. Given label ${given}.`
    + (differs ? ` Proposed label ${proposed}.` : "") + ` ${find("decided").textContent}`;
}

function showDecision(image) {
  const row = decisions[image.sha256];
  find("decided").replaceChildren();
  find("decided").hidden = !row;
  if (row) {
    find("decided").append(make("strong", DONE[row.action]), " ", make("bdi", row.to),
      " · ", make("bdi", row.who || "somebody"), row.when && `, ${isNaN(new Date(row.when)) ? row.when : new Date(row.when).toLocaleString("en")}`, " · ",
      make("bdi", row.why));
  }
  for (const button of document.querySelectorAll("[data-act], .classes button")) {
    const isChosen = row && (row.action === button.dataset.act
      ? row.action !== "relabel" || row.to === labelOf(image.proposed)
      : row.action === "relabel" && row.to === button.value);
    button.setAttribute("aria-pressed", String(Boolean(isChosen)));
  }
  for (const button of find("classes").children) {
    button.disabled = button.value === labelOf(image.label);
  }
}

function showProgress() {
  const rows = facts.images.map(image => decisions[image.sha256]).filter(Boolean);
  find("bar").max = facts.images.length || 1;
  find("bar").value = rows.length;
  find("count").textContent = `${rows.length} of ${facts.images.length} decided`;
  const counts = Object.entries({ keep: "kept", relabel: "relabeled", remove: "removed",
    unsure: "unsure" }).map(([action, word]) =>
    `${rows.filter(row => row.action === action).length} ${word}`);
  find("counts").textContent = counts.join(" · ");
}

// Applies one change, or reads all if somebody else has changed the file meanwhile.
async function take(said) {
  const isNext = said.before === version;
  if (said.decision) decisions[said.sha256] = said.decision;
  else delete decisions[said.sha256];
  version = isNext ? said.version : version;
  if (!isNext) await refresh();
}

async function refresh() {
  const said = await ask(`/api/decisions?version=${version}`);
  version = said.version;
  if (!said.decisions) return;
  decisions = said.decisions;
  showProgress();
  if (current()) showDecision(current());
}

async function decide(action, to, note) {
  const image = current();
  const said = await ask("/api/decisions", { sha256: image.sha256, action, to, note });
  made.push([image.sha256]);
  await take(said);
  showNext(image);
}

// Goes to the next undecided image.
function showNext(image) {
  const isOpen = step => {
    const number = chosen[(place + step) % chosen.length];
    return !(facts.images[number].sha256 in decisions);
  };
  const step = chosen.map((_, number) => number).find(isOpen);
  if (step !== undefined) {
    place = (place + step) % chosen.length;
    show();
    return;
  }
  showDecision(image);
  showProgress();
  say("All images here are decided. See below how to apply the decisions.");
  document.querySelector("details").open = true;
}

async function undo() {
  const last = made.pop() ?? [null];
  let digest;
  while (last.length) {
    const said = await ask("/api/undo", last[0] ? { sha256: last.at(-1) } : {});
    last.pop();
    await take(said);
    digest = said.sha256;
  }
  const seen = chosen.findIndex(number => facts.images[number].sha256 === digest);
  if (seen >= 0) place = seen;
  show();
  const image = facts.images.find(one => one.sha256 === digest);
  say(`Undone: ${image.path}`);
}

const oddsOf = image => image.reasons.find(([reason]) => reason === "label")?.[1] ?? 0;

// Shows all undecided images of the filters whose labels are wrong with some probability.
function showGrid() {
  const least = Number(find("least").value) / 100;
  find("least-shown").textContent = percent.format(least);
  const shown = chosen.map(number => facts.images[number]).filter(image =>
    !(image.sha256 in decisions) && image.proposed >= 0 && image.proposed !== image.label
    && oddsOf(image) >= least);
  find("cells").replaceChildren(...shown.map(image => {
    const [item, cell, picture] = [make("li"), make("button"), new Image()];
    cell.type = "button";
    cell.value = image.sha256;
    cell.title = image.path;
    cell.setAttribute("aria-pressed", "true");
    picture.loading = "lazy";
    picture.alt = `Image ${image.path}`;
    picture.src = pictureOf(image, "small");
    const labels = make("bdi", `${labelOf(image.label)} → ${labelOf(image.proposed)}`);
    cell.append(picture, labels, make("span", odds(oddsOf(image))));
    item.append(cell);
    return item;
  }));
  showAccepted();
  if (!find("grid").open) find("grid").showModal();
}

const listAccepted = () => [...document.querySelectorAll(".cells [aria-pressed=true]")].map(cell => cell.value);

function showAccepted() {
  const count = listAccepted().length;
  find("accept").disabled = !count;
  find("accept").textContent = `Relabel ${count} image${count === 1 ? "" : "s"}`;
}

async function accept() {
  const [accepted, together] = [new Set(listAccepted()), []];
  find("grid").close();
  // A second click must not relabel them again.
  find("cells").replaceChildren();
  const note = `one of ${accepted.size} at once, at least ${find("least-shown").textContent}`;
  for (const { sha256, proposed } of facts.images.filter(image => accepted.has(image.sha256))) {
    say(`Relabeling ${together.length + 1} of ${accepted.size} …`);
    const said = await ask("/api/decisions", { sha256, action: "relabel", to: labelOf(proposed), note });
    if (!together.length) made.push(together);
    together.push(sha256);
    await take(said);
  }
  showNext(current());
}

function act(name, value) {
  if (name === "note") {
    find("note").focus();
    return;
  }
  // The note belongs to the decision before which it was typed.
  const note = name in DONE ? find("note").value : "";
  if (note) find("note").value = "";
  queue = queue.then(async () => {
    if (!current()) return;
    if (name === "back" || name === "forward") {
      place = Math.min(Math.max(place + (name === "back" ? -1 : 1), 0), chosen.length - 1);
      show();
      return;
    }
    if (name === "undo") return undo();
    if (name === "together") return showGrid();
    await visible;
    const { label, proposed } = current();
    const lacks = name === "relabel" && value === undefined && (proposed < 0 || proposed === label);
    if (name === "other" || lacks) return choose(note);
    return decide(name, name === "relabel" ? value ?? labelOf(proposed) : "", note);
  }).catch(error => {
    find("note").value ||= note;
    say(error.message, true);
  });
}

function choose(note = "") {
  find("note").value ||= note;
  if (find("chooser").open) return;
  find("query").value = "";
  list();
  find("chooser").showModal();
}

// Names that begin with what was typed come first, then others that contain it, then the number.
function list() {
  const typed = find("query").value.trim().toLowerCase();
  const rank = (name, number) => {
    const text = name.toLowerCase();
    if (text === typed) return 0;
    if (text.startsWith(typed)) return 1;
    if (String(number + 1) === typed.replace("#", "")) return 2;
    return text.includes(typed) ? 3 : 4;
  };
  const found = facts.labels.map((name, number) => ({ name, number, rank: rank(name, number) }))
    .filter(one => one.rank < 4 && one.number !== current().label)
    .sort((one, other) => one.rank - other.rank || one.number - other.number);
  find("choices").replaceChildren(...found.slice(0, MOST_CHOICES).map(({ name, number }, rank) => {
    const item = make("li");
    item.id = `choice-${rank}`;
    item.setAttribute("role", "option");
    item.append(make("span", String(number + 1), "soft"), make("bdi", name));
    item.addEventListener("click", () => pick(name));
    item.dataset.label = name;
    return item;
  }));
  const more = found.length - MOST_CHOICES;
  find("more").textContent = found.length ? (more > 0 ? `… and ${more} more` : "") : "No such label";
  mark(0);
}

function mark(number) {
  const items = [...find("choices").children];
  const wanted = Math.min(Math.max(number, 0), items.length - 1);
  items.forEach((item, one) => item.setAttribute("aria-selected", String(one === wanted)));
  find("query").setAttribute("aria-activedescendant", items[wanted]?.id ?? "");
  items[wanted]?.scrollIntoView({ block: "nearest" });
}

function pick(name) {
  find("chooser").close();
  act("relabel", name);
}

function fill(select, entries) {
  select.replaceChildren(new Option("all", ""), ...entries.map(([value, text]) =>
    new Option(text.length > 60 ? `${text.slice(0, 60)} …` : text, value)));
}

// With few labels each has a button and a key: its own name if all are digits, else its number.
function makeClasses() {
  const few = facts.labels.length <= FEW_LABELS;
  const digits = facts.labels.every(name => /^[0-9]$/.test(name));
  find("classes").hidden = !few;
  if (!few) return;
  find("classes").replaceChildren(...facts.labels.map((name, number) => {
    const button = make("button");
    const key = digits ? name : String((number + 1) % 10);
    button.type = "button";
    button.value = name;
    button.append(make("bdi", name), make("kbd", key));
    button.setAttribute("aria-keyshortcuts", key);
    button.addEventListener("click", () => act("relabel", name));
    KEYS[key] = `class ${number}`;
    return button;
  }));
}

async function start() {
  facts = await ask("/api/images");
  ({ decisions, version } = facts);
  find("title").textContent = facts.title;
  find("file").textContent = facts.file;
  find("next").textContent = facts.next;
  const reasons = new Set(facts.images.flatMap(image => image.reasons.map(([name]) => name)));
  const labels = new Set(facts.images.flatMap(image => [image.label, image.proposed]));
  fill(find("reason"), [...reasons].map(name => [name, facts.words[name] ?? name]));
  fill(find("label"), facts.labels.map((name, number) => [number, name])
    .filter(([number]) => labels.has(number)));
  makeClasses();
  filter(location.hash.slice(1));
  setInterval(() => {
    if (!document.hidden) queue = queue.then(refresh).catch(error => say(error.message, true));
  }, 1000 * POLL_SECONDS);
}

find("actions").addEventListener("click", event => {
  const button = event.target.closest("button");
  if (button) act(button.dataset.act);
});
for (const id of ["reason", "label", "state"]) {
  find(id).addEventListener("change", () => {
    filter(current()?.sha256);
    // Keys are for decisions again.
    find(id).blur();
  });
}
document.addEventListener("keydown", event => {
  const isTyping = event.target.matches("input, select, textarea");
  if (event.target === find("note") && ["Enter", "Escape"].includes(event.key)) find("note").blur();
  if (isTyping || document.querySelector("dialog[open]") || event.altKey) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if ((event.ctrlKey || event.metaKey) && key !== "z") return;
  const name = KEYS[key];
  // A key that is held down decides once.
  if (!name || (event.repeat && !["back", "forward"].includes(name))) return;
  event.preventDefault();
  if (name.startsWith("class ")) {
    const label = Number(name.slice(6));
    act(label === current()?.label ? "keep" : "relabel", labelOf(label));
  } else act(name);
});
find("query").addEventListener("input", list);
find("query").addEventListener("keydown", event => {
  const items = [...find("choices").children];
  const at = items.findIndex(item => item.getAttribute("aria-selected") === "true");
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) mark(at + step);
  if (event.key === "Enter" && items[at]) pick(items[at].dataset.label);
  if (step || event.key === "Enter") event.preventDefault();
});
find("together").addEventListener("click", () => act("together"));
find("least").addEventListener("input", showGrid);
find("cells").addEventListener("click", event => {
  const cell = event.target.closest("button");
  if (!cell) return;
  cell.setAttribute("aria-pressed", String(cell.getAttribute("aria-pressed") === "false"));
  showAccepted();
});
find("accept").addEventListener("click", () => {
  queue = queue.then(accept).catch(error => say(error.message, true));
});
find("leave").addEventListener("click", () => find("grid").close());
find("cancel").addEventListener("click", () => find("chooser").close());
find("filters").addEventListener("submit", event => event.preventDefault());
start().catch(error => say(error.message, true));
