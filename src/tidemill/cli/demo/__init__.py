"""`tidemill demo`: all parts of Tidemill on one machine.

A broker runs in a thread of this process. `orders` writes a seeded stream of orders to a topic. `reminders` schedules
messages on a timeline and consumes them. `revenue` runs a Spark pipeline in its own process (`pipeline`) and reads its
output. `screen` displays everything. `run` is the command, which starts the parts and stops them in order.
"""
