"""`tidemill demo`: everything at once, on one machine.

A broker runs in a thread of this process. `orders` writes a seeded stream of orders to a topic, `reminders` puts
messages on a timeline and works them off, `revenue` runs a Spark pipeline in a process of its own (`pipeline`) and
reads what it writes. `screen` shows all of it; `run` is the command, which starts the parts and ends them in order.
"""
