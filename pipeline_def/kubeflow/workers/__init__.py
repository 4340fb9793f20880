"""Several workers that train together; `tf_job_step` and `vertex_trainer` are the doors."""
