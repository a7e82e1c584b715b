"""The fetch loop: sessions, two lanes per broker, buffers bounded in bytes.

:mod:`.session`, :mod:`.state`, :mod:`.lanes` and :mod:`.chunk` do no I/O; :mod:`.plane` is the shell around them.
"""
