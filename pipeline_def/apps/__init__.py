"""Programs for a finished run: the server and the page for reviewing labels."""
