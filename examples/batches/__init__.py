"""A consumer that works in batches of so many bytes or so many seconds: Landau'24's cycle on ``getmany``."""
