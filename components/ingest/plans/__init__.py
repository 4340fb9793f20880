"""What goes from a listing to shards: which files each holds, and the processes that write it."""
