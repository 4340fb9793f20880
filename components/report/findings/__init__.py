"""Findings: what stands out in a run. Start with `examination.py`."""
