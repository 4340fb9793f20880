// Uses the REST API of this server, like any other client.
const FEW = 4;
const MOST_NAMED = 20;
const find = id => document.getElementById(id);
const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });
const settings = fetch("/settings.json").then(answer => answer.json());
// Number of the latest picture; responses for earlier ones are dropped.
let turn = 0;
let shownUrl = null;
let shownFile = null;
let explainedFile = null;

async function readAnswer(answer) {
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.error ?? `The server returned status ${answer.status}.`);
  return said;
}

async function describeModel() {
  const { model, warning } = await settings;
  find("warning").textContent = warning;
  const said = await readAnswer(await fetch(`${model}/metadata`));
  find("model").textContent = `Model ${said.model_spec.name}, version ${said.model_spec.version}.`;
  return said.metadata.signature_def.signature_def;
}

async function nameLabels() {
  const labels = await readAnswer(await fetch("/labels.json"));
  const more = labels.length > MOST_NAMED ? ` and ${labels.length - MOST_NAMED} more` : "";
  if (labels.length) find("knows").textContent = `Knows only: ${labels.slice(0, MOST_NAMED).join(", ")}${more}.`;
}

async function ask(file, signature) {
  const { model, most_bytes: most } = await settings;
  if (file.size > most) {
    throw new Error(`${file.name} has ${(file.size / 2 ** 20).toFixed(1)} MiB; the limit is ${(most / 2 ** 20).toFixed(0)} MiB.`);
  }
  const url = await new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(new Error("The file cannot be read."));
    reader.readAsDataURL(file);
  });
  const b64 = url.slice(url.indexOf(",") + 1);
  const body = JSON.stringify({ signature_name: signature, instances: [{ image_bytes: { b64 } }] });
  const headers = { "Content-Type": "application/json" };
  const said = await readAnswer(await fetch(`${model}:predict`, { method: "POST", headers, body }));
  const [row] = said.predictions;
  if (row.error) throw new Error(row.error);
  return row;
}

function say(text, isBad = false) {
  find("status").textContent = text;
  find("status").className = isBad ? "bad" : "";
}

// Several pictures become cards; a click on one shows it whole.
async function showAll(files) {
  find("several").hidden = files.length < 2;
  if (files.length === 1) return show(files[0]);
  const mine = ++turn;
  find("result").hidden = true;
  find("several").replaceChildren();
  for (const [place, file] of files.entries()) {
    say(`Classifying ${file.name}, ${place + 1} of ${files.length} …`);
    const row = await ask(file, "serving_default").catch(error => ({ error: explain(error) }));
    if (mine !== turn) return;
    find("several").append(makeCard(file, row));
  }
  say("");
}

function makeCard(file, { label, probabilities, error, known }) {
  const [item, button, picture, name, share] = ["li", "button", "img", "bdi", "span"].map(kind => document.createElement(kind));
  button.type = "button";
  button.addEventListener("click", () => show(file));
  picture.onload = () => URL.revokeObjectURL(picture.src);
  // Not every browser shows TIFF or HEIC, and none what is no image.
  picture.onerror = () => { picture.hidden = true; URL.revokeObjectURL(picture.src); };
  picture.alt = "";
  picture.src = URL.createObjectURL(file);
  name.textContent = error || label;
  name.className = error ? "bad" : "";
  share.textContent = error ? file.name :
    `${percent.format(Math.max(...probabilities))}${known === false ? ", unknown" : ""}`;
  button.append(picture, name, share);
  item.append(button);
  return item;
}

async function show(file) {
  const mine = ++turn;
  say(`Classifying ${file.name} …`);
  showPicture(file);
  try {
    const began = performance.now();
    const [signatures, row] = await Promise.all([describeModel(), ask(file, "serving_default")]);
    if (mine !== turn) return;
    const seconds = (performance.now() - began) / 1000;
    showLabels(row);
    find("time").textContent = `Classified in ${seconds.toFixed(2)} s.`;
    find("switch").hidden = !signatures.explain;
    say("");
    find("answer").focus();
  } catch (error) {
    if (mine !== turn) return;
    find("result").hidden = true;
    fail(error);
  }
}

const explain = error => error instanceof TypeError ? "The server cannot be reached." : error.message;

function fail(error) {
  say(explain(error), true);
}

function showPicture(file) {
  if (shownUrl) URL.revokeObjectURL(shownUrl);
  shownFile = file;
  find("answer").textContent = find("time").textContent = "";
  find("filled").style.width = 0;
  find("bars").replaceChildren();
  find("shown").checked = false;
  shownUrl = URL.createObjectURL(file);
  const picture = find("picture");
  picture.className = "";
  picture.alt = `The picture, ${file.name}`;
  picture.hidden = false;
  picture.onerror = () => {
    picture.hidden = true;
    find("caption").textContent = `${file.name}, which this browser cannot show`;
  };
  find("caption").textContent = file.name;
  picture.src = shownUrl;
  for (const id of ["heat", "switch", "legend", "more"]) find(id).hidden = true;
  find("result").hidden = false;
}

function showLabels({ label, labels, probabilities, known }) {
  const order = probabilities.map((_, place) => place)
    .sort((one, other) => probabilities[other] - probabilities[one]);
  const describe = (text, place) => {
    const [name, share] = ["bdi", "span"].map(kind => document.createElement(kind));
    name.textContent = text;
    share.textContent = probabilities[place] < .001 ? "under 0.1%" : percent.format(probabilities[place]);
    return [name, " ", share];
  };
  const [first, ...others] = order;
  find("answer").replaceChildren(...describe(label, first));
  find("unlike").textContent =
    known === false ? "It is unlike the pictures of training, so the label may mean nothing." : "";
  find("filled").style.width = `${100 * probabilities[first]}%`;
  find("bars").replaceChildren(...others.map((place, rank) => {
    const item = document.createElement("li");
    item.hidden = rank >= FEW;
    const [bar, filled] = ["div", "div"].map(kind => document.createElement(kind));
    bar.className = "bar";
    filled.style.width = `${100 * probabilities[place]}%`;
    bar.append(filled);
    item.append(...describe(labels[place], place), bar);
    return item;
  }));
  find("more").hidden = others.length <= FEW;
  find("more").textContent = `Show ${others.length - FEW} more`;
}

// From dark (low contribution) to bright (high contribution).
const RAMP = [[20, 20, 60, .55], [190, 50, 90, .6], [255, 200, 60, .75]];

function color(value) {
  const place = Math.min(Math.max(value, 0), 1) * (RAMP.length - 1);
  const below = Math.min(Math.floor(place), RAMP.length - 2);
  return RAMP[below].map((from, i) => from + (RAMP[below + 1][i] - from) * (place - below));
}

function showHeat({ label, heat_map: rows, seen_bytes: seen }, name) {
  const canvas = find("heat");
  [canvas.width, canvas.height] = [rows[0].length, rows.length];
  const pixels = new ImageData(canvas.width, canvas.height);
  rows.flat().forEach((value, place) => {
    const [red, green, blue, alpha] = color(value);
    pixels.data.set([red, green, blue, 255 * alpha], 4 * place);
  });
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  const picture = find("picture");
  // The heat map matches the input of the model: square, at the size of the model.
  picture.hidden = false;
  picture.src = `data:image/png;base64,${seen.b64}`;
  picture.className = rows.length <= 96 ? "seen tiny" : "seen";
  picture.alt = `${name}, as the model sees it`;
  find("caption").textContent = `${name}, as the model sees it: ${rows[0].length} by ${rows.length} pixels. ` +
    `Bright areas contributed most to ${label}.`;
}

// The heat map takes several runs of the network, so it is computed on request.
async function toggle() {
  const mine = turn;
  if (find("shown").checked && explainedFile !== shownFile) {
    say("Computing the heat map …");
    try {
      const why = await ask(shownFile, "explain");
      if (mine !== turn) return;
      showHeat(why, shownFile.name);
      explainedFile = shownFile;
      say("");
    } catch (error) {
      if (mine === turn) fail(error);
      return;
    }
  }
  for (const id of ["heat", "legend"]) find(id).hidden = !find("shown").checked;
}

async function openCamera() {
  if (!navigator.mediaDevices?.getUserMedia) {
    // Browsers allow the camera only on localhost and https. This fallback works on phones.
    find("capture").click();
    return;
  }
  try {
    find("video").srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    find("viewfinder").showModal();
  } catch (error) {
    say(`The camera cannot be used: ${error.message}`, true);
  }
}

function takePicture() {
  const video = find("video");
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
  canvas.getContext("2d").drawImage(video, 0, 0);
  find("viewfinder").close();
  canvas.toBlob(blob => showAll([new File([blob], "camera.png", { type: "image/png" })]));
}

find("choose").addEventListener("click", () => find("file").click());
find("camera").addEventListener("click", openCamera);
for (const id of ["file", "capture"]) {
  find(id).addEventListener("change", event => {
    const files = [...event.target.files];
    if (files.length) showAll(files);
    event.target.value = "";
  });
}
find("take").addEventListener("click", takePicture);
find("cancel").addEventListener("click", () => find("viewfinder").close());
find("viewfinder").addEventListener("close", () => {
  find("video").srcObject?.getTracks().forEach(track => track.stop());
  find("video").srcObject = null;
});
find("shown").addEventListener("change", toggle);
find("more").addEventListener("click", () => {
  for (const item of find("bars").children) item.hidden = false;
  find("more").hidden = true;
});
document.addEventListener("dragover", event => {
  event.preventDefault();
  document.body.classList.add("over");
});
document.addEventListener("dragleave", event => {
  if (!event.relatedTarget) document.body.classList.remove("over");
});
document.addEventListener("drop", event => {
  event.preventDefault();
  document.body.classList.remove("over");
  const files = [...event.dataTransfer.files];
  if (files.length) showAll(files);
  else say("That was not a file. Drop an image file.", true);
});
document.addEventListener("paste", event => {
  const file = [...event.clipboardData.files].find(one => one.type.startsWith("image/"));
  if (file) showAll([file]);
});
Promise.all([describeModel(), nameLabels()]).catch(error => say(error.message, true));
