// Browsing: links of matrix and tables, and a form, choose which of the evaluated images are shown.
const form = document.querySelector("#filter");
const cards = [...document.querySelectorAll(".thumbs > li")];
// With so many images at most, their classes are opened.
const FEW = 60;

function chooseImages() {
  const { label, predicted, answer } = form.elements;
  const fits = card => {
    const { label: truth, predicted: said } = card.dataset;
    return (!label.value || truth === label.value) && (!predicted.value || said === predicted.value)
      && (!answer.value || (truth === said) === (answer.value === "right"));
  };
  for (const card of cards) card.hidden = !fits(card);
  const shown = cards.filter(card => !card.hidden).length;
  const chosen = label.value || predicted.value || answer.value;
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
  // The form is as it was until the event is over.
  form.addEventListener("reset", () => setTimeout(chooseImages));
  form.addEventListener("submit", event => event.preventDefault());
  document.addEventListener("click", event => {
    const link = event.target.closest("a[data-label], a[data-predicted]");
    if (!link) return;
    event.preventDefault();
    form.elements.label.value = link.dataset.label ?? "";
    form.elements.predicted.value = link.dataset.predicted ?? "";
    form.elements.answer.value = "";
    chooseImages();
    form.scrollIntoView();
    form.querySelector("output").focus({ preventScroll: true });
  });
}

// Enlarging: each picture becomes a button that opens it in a dialog, where arrow keys go on.
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

function goOn(step) {
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
    goOn(event.key === "ArrowRight" ? 1 : -1);
  }
});
dialog.addEventListener("click", event => {
  const { step } = event.target.closest("button")?.dataset ?? {};
  if (step) goOn(Number(step));
  else if (event.target.closest("button") || event.target === dialog) dialog.close();
});
dialog.addEventListener("close", () => opened?.focus());
