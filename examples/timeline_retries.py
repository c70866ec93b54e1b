"""Retry with growing delays: a failed job is released for later, and becomes a dead letter after three attempts.

Run it against `tidemill serve`: python examples/timeline_retries.py
"""

import asyncio
import time

from tidemill import AsyncTimeline, Message

ADDRESS = "127.0.0.1:6174"
JOBS = 10


async def handle(body: bytes) -> None:
    await asyncio.sleep(0.01)  # a web service
    if body == b"job 7":
        raise ValueError("job 7 cannot be done")


async def main() -> None:
    async with AsyncTimeline(ADDRESS, name="example-jobs") as jobs:
        await jobs.create(lease_ms=2_000, max_attempts=3, dead_letter="timeline:example-jobs.dead")
        await jobs.schedule([Message(f"job {number}".encode(), due=time.time()) for number in range(JOBS)])
        async for lease in jobs.work(idle_ms=3_000):
            try:
                await handle(lease.body)
            except ValueError as error:
                pause_ms = 100 * 2**lease.attempts
                print(f"{lease.body.decode()}: {error}; attempt {lease.attempts}, again in {pause_ms} ms")
                await lease.release(delay_ms=pause_ms)
            else:
                await lease.complete()
    async with AsyncTimeline(ADDRESS, name="example-jobs.dead") as dead:
        print("dead letters:", [message.body.decode() for message in await dead.messages()])


if __name__ == "__main__":
    asyncio.run(main())
