"""Reading a group from outside: the connection, the control topic, and the fold of its records into a view."""
