"""Several machines that train together; the step Trainer starts them with `worker_step`."""
