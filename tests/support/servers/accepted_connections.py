"""Lets a server stop listening without losing connections that it has just accepted."""

import asyncio

_SHORTEST = 1e-9


async def wait_for_accepted() -> None:
    """Await this right before `Server.close`: every accepted connection then has a transport.

    asyncio neither serves nor closes a connection if the server is closed before its transport exists; the client
    waits until the socket is garbage collected. A timer runs last in a round of the event loop, after the accepts. Its
    waiter runs in the next round, after the transports are created and before the next accepts.
    """
    await asyncio.sleep(_SHORTEST)
