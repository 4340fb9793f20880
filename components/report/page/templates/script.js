// Kubeflow's interface shows the page in a frame without an address of its own, so links would
// resolve against the address of the outer page.
document.addEventListener("click", event => {
  const link = event.target.closest("a[href^='#']");
  if (!link || document.URL !== "about:srcdoc") return;
  event.preventDefault();
  document.querySelector(link.hash).scrollIntoView();
});

// Overflow is known only after layout.
const sizes = new ResizeObserver(entries => {
  for (const { target } of entries) {
    target.nextElementSibling.hidden = target.scrollWidth <= target.clientWidth;
  }
});
document.querySelectorAll(".scroll").forEach(table => sizes.observe(table));
