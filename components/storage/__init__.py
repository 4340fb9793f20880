"""Files wherever they are: listing a folder, reading many files, object stores, text artifacts."""
