"""What one member measures of its own records. Pure: time is an argument."""
