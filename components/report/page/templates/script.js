// Kubeflow's interface shows the page in a frame that has a text but no address of its own, so that
// links would be resolved against the address of the page around it.
document.addEventListener("click", event => {
  const link = event.target.closest("a[href^='#']");
  if (!link || document.URL !== "about:srcdoc") return;
  event.preventDefault();
  document.querySelector(link.hash).scrollIntoView();
});
