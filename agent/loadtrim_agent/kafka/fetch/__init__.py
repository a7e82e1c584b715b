"""The fetch loop: sessions, two channels per broker, buffers bounded in bytes.

:mod:`.session`, :mod:`.state`, :mod:`.channels` and :mod:`.chunk` do no I/O; :mod:`.fetcher` is the shell around them.
"""
