"""Several machines that train together; the step Trainer starts them with `tf_job_step`."""
