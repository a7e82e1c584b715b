"""Consumers of loadtrim in frameworks. Each module here needs the extra of its name, and nothing else imports it."""
