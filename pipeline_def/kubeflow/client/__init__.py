"""Start, follow and stop runs on a cluster; `runs` and `vertex_client` are the doors."""
