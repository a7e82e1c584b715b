"""What goes over topics: records, topic names, and how both are read and written."""
