"""Calls that may block, such as reading a device that does not answer, in threads of their own."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result], name: str) -> Result:
    """Do work beside the loop.

    Not in a pool: the end of the process would wait for its threads, and some reads can never be interrupted.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def finish(result: Result | None, error: Exception | None) -> None:
        if done.done():  # nobody waits any more
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - it is raised where the result is waited for
            failure = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(finish, result, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
