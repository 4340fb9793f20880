"""Two runs side by side: `compare_runs` finds what differs, `render_comparison` writes the page."""
