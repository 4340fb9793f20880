"""The report as a model card: `card.write_card` turns `ReportFacts` into Markdown."""
