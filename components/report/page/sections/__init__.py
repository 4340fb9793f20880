"""Rows, numbers and figures of the page's sections; `templates` has the markup."""
