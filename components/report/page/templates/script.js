// Kubeflow's interface shows the page in a frame that has a text but no address of its own, so that
// links would be resolved against the address of the page around it.
document.addEventListener("click", event => {
  const link = event.target.closest("a[href^='#']");
  if (!link || document.URL !== "about:srcdoc") return;
  event.preventDefault();
  document.querySelector(link.hash).scrollIntoView();
});

// Whether a table is wider than its place is known only when both have a size.
const sizes = new ResizeObserver(entries => {
  for (const { target } of entries) {
    target.nextElementSibling.hidden = target.scrollWidth <= target.clientWidth;
  }
});
document.querySelectorAll(".scroll").forEach(table => sizes.observe(table));
