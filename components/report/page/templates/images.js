// Browsing: a form, and links in the matrix and tables, filter the evaluated images.
const form = document.querySelector("#filter");
const cards = [...document.querySelectorAll(".thumbs > li")];
// Classes are expanded for up to this many images.
const FEW = 60;

function chooseImages() {
  const { label, predicted, result } = form.elements;
  const fits = card => {
    const { label: truth, predicted: found } = card.dataset;
    return (!label.value || truth === label.value) && (!predicted.value || found === predicted.value)
      && (!result.value || (truth === found) === (result.value === "right"));
  };
  for (const card of cards) card.hidden = !fits(card);
  const shown = cards.filter(card => !card.hidden).length;
  const chosen = label.value || predicted.value || result.value;
  for (const group of document.querySelectorAll("details.group")) {
    group.hidden = !group.querySelector("li:not([hidden])");
    group.open = Boolean(chosen) && (Boolean(label.value) || shown <= FEW);
  }
  for (const more of document.querySelectorAll("details.more")) {
    more.hidden = !more.querySelector("details.group:not([hidden])");
    more.open = Boolean(chosen);
  }
  form.querySelector("output").textContent = `${shown} of ${cards.length} pictures`;
}

if (form) {
  form.hidden = false;
  form.addEventListener("change", chooseImages);
  // The form still has its old values during the event.
  form.addEventListener("reset", () => setTimeout(chooseImages));
  form.addEventListener("submit", event => event.preventDefault());
  document.addEventListener("click", event => {
    const link = event.target.closest("a[data-label], a[data-predicted]");
    if (!link) return;
    event.preventDefault();
    form.elements.label.value = link.dataset.label ?? "";
    form.elements.predicted.value = link.dataset.predicted ?? "";
    form.elements.result.value = "";
    chooseImages();
    form.scrollIntoView();
    form.querySelector("output").focus({ preventScroll: true });
  });
}

// Enlarging: each picture becomes a button that opens it in a dialog with arrow keys.
const dialog = document.querySelector("#enlarged");
let opened = null;

function enlarge(button) {
  opened = button;
  const picture = button.querySelector("img").cloneNode();
  picture.removeAttribute("width");
  picture.removeAttribute("height");
  dialog.querySelector(".stage").replaceChildren(picture);
  dialog.querySelector("p").textContent = picture.alt;
  if (!dialog.open) dialog.showModal();
}

function showNext(step) {
  const beside = [...opened.closest("ul").querySelectorAll("li:not([hidden]) .enlarge")];
  const next = beside[beside.indexOf(opened) + step];
  if (next) enlarge(next);
}

for (const picture of document.querySelectorAll(".thumbs img, .gallery img")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "enlarge";
  button.addEventListener("click", () => enlarge(button));
  picture.replaceWith(button);
  button.append(picture);
}
dialog.addEventListener("keydown", event => {
  if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    showNext(event.key === "ArrowRight" ? 1 : -1);
  }
});
dialog.addEventListener("click", event => {
  const { step } = event.target.closest("button")?.dataset ?? {};
  if (step) showNext(Number(step));
  else if (event.target.closest("button") || event.target === dialog) dialog.close();
});
dialog.addEventListener("close", () => opened?.focus());
