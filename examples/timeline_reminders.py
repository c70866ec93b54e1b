"""Schedule reminders, lease and complete them, and print how late each one was.

Run it against `tidemill serve`: python examples/timeline_reminders.py
"""

import time
from itertools import islice

from tidemill import Message, Timeline

ADDRESS = "127.0.0.1:6174"
REMINDERS = 20


def main() -> None:
    with Timeline(ADDRESS, name="example-reminders") as timeline:
        timeline.create(lease_ms=5_000)
        now = time.time()
        timeline.schedule(
            [Message(f"reminder {number}".encode(), due=now + 0.5 + number / 20) for number in range(REMINDERS)]
        )
        work = timeline.work(consumer_id="example", idle_ms=10_000)
        for lease in islice(work, REMINDERS):
            late_ms = (time.time() - lease.due.timestamp()) * 1_000
            print(f"{lease.body.decode():12} {late_ms:5.1f} ms late")
            lease.complete()


if __name__ == "__main__":
    main()
