"""The reservation of offsets: recorded before they are acknowledged, and without changing the order of calls."""

import asyncio

from tidemill.streams.reservation import RESERVED_OFFSETS, Reservation


async def test_a_batch_that_needs_no_step_waits_behind_those_that_do() -> None:
    recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    returned: list[int] = []

    async def flush(_: int) -> None:
        pass

    async def record(bound: int) -> int:
        await recorded
        returned_late.append(asyncio.create_task(write(5)))  # arrives when the step is known, before others wake
        return bound

    async def write(next_offset: int) -> None:
        if reservation.waiting or next_offset > reservation.due_offset:
            await reservation.cover(next_offset)
        returned.append(next_offset)

    returned_late: list[asyncio.Task[None]] = []
    reservation = Reservation(0, flush, record)
    early = [asyncio.create_task(write(number)) for number in (1, 2, 3, 4)]
    await asyncio.sleep(0)
    recorded.set_result(None)
    await asyncio.gather(*early)
    await asyncio.gather(*returned_late)
    assert reservation.due_offset >= RESERVED_OFFSETS // 2
    assert not reservation.waiting
    assert returned == [1, 2, 3, 4, 5]
