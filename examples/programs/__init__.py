"""Programs as people write them around a consumer: one record at a time, tasks, batches, workers, a pool of threads."""
