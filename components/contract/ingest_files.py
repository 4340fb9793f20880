"""Names of the files that ingest writes about the files it rejected, copied or corrected."""

REJECTS_FILE = "rejects.jsonl"
SKIPPED_FILE = "skipped.jsonl"
DUPLICATES_FILE = "duplicates.jsonl"
NEAR_DUPLICATES_FILE = "near_duplicates.jsonl"
CORRECTIONS_FILE = "corrections.jsonl"
SUMMARY_FILE = "summary.json"

LABEL_IS_ALREADY = "the label is already"
"""Beginning of the reason why a correction that its folder has made, too, was not applied."""
