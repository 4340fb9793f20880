"""What the sections of the page compute: rows, numbers and figures; `templates` has the markup."""
