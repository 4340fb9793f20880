"""Starting and following runs on a cluster; `submission` is the door."""
