"""What weeks of history are worth: a group that learnt from them beside one that did not (``make demo-spark``)."""
