"""A service as a user of loadtrim writes it: takes payments from a topic, one at a time."""
