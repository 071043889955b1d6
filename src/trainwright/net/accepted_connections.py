"""What a server has to wait for before it stops listening, so that it loses none of its connections."""

import asyncio

_SHORTEST = 1e-9


async def all_accepted() -> None:
    """Await this right before a server is closed: what was accepted has its transport then.

    If a server is closed between the two, asyncio neither serves nor closes the connection: its client waits
    until the garbage collector finds it. A timer runs last in a round of the event loop, after what accepts; what
    it wakes runs in the next round after the transports are made, and before anything else is accepted.
    """
    await asyncio.sleep(_SHORTEST)
