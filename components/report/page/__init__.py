"""The report as one HTML page: `document.render` turns `ReportFacts` into text."""
