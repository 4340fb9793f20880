"""Two runs side by side: `compare_runs` finds what differs, `document.render` writes the page."""
