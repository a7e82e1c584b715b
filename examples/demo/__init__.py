"""The demo: a recorded load against the payments service, watched, checked and reported."""
