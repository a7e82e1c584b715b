"""Between the broker and user code: streams of partitions, the record buffer, the listener, the metering task."""
