"""One test, two colours: the async facade made to look like the sync one.

Every awaitable of a wrapped ``AsyncStore``, and of the handles, jobs and leases it gives out, runs on an event loop of
its own in a thread of its own. So several threads may use one wrapped store, as they may use a ``Store``. What one
thread asks for runs in one task: a transaction is held by a task as it is by a thread (X1).
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Literal

ColourName = Literal["sync", "async"]
# Nothing in the suite takes this long: a call that does hangs.
_PATIENCE = 120.0
_WRAPPED = frozenset(
    {
        "AsyncStore",
        "AsyncTransport",
        "AsyncQueue",
        "AsyncOutbox",
        "AsyncLease",
        "AsyncJob",
        "AsyncListener",
        "AsyncTransaction",
        "AsyncSavepoint",
    }
)


def _is_async(value: Any) -> bool:
    kind = type(value)
    # SQLAlchemy has an AsyncTransaction too.
    ours = kind.__name__ in _WRAPPED and not kind.__module__.startswith("sqlalchemy.")
    return ours or hasattr(kind, "__anext__")


class _Line:
    """A task that does what one thread asks for, one thing after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked: asyncio.Queue[tuple[Callable[[], Awaitable[Any]], Future[Any]]] = asyncio.Queue()
        asyncio.run_coroutine_threadsafe(self._serve(), loop)

    def ask(self, run: Callable[[], Awaitable[Any]]) -> Future[Any]:
        """Have it done."""
        future: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._asked.put_nowait, (run, future))
        return future

    async def _serve(self) -> None:
        while True:
            run, future = await self._asked.get()
            try:
                future.set_result(await run())
            except asyncio.CancelledError:
                future.cancel()
                raise
            except BaseException as error:
                future.set_exception(error)


class Runner:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="rota-colour", daemon=True)
        self._thread.start()
        self._lines = threading.local()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``function`` on the loop, await what it returns if that is awaitable, and wrap the result."""

        async def run() -> Any:
            result = function(*map(unwrap, args), **{name: unwrap(value) for name, value in kwargs.items()})
            return await result if inspect.isawaitable(result) else result

        line: _Line | None = getattr(self._lines, "line", None)
        if line is None:
            line = self._lines.line = _Line(self.loop)
        return self.wrap(line.ask(run).result(_PATIENCE))

    def wrap(self, value: Any) -> Any:
        """What a sync caller would get: blocking stand-ins for async objects, everything else as it is."""
        if _is_async(value):
            return Blocking(self, value)
        if type(value) is list and any(map(_is_async, value)):
            return [Blocking(self, item) if _is_async(item) else item for item in value]
        return value

    def close(self) -> None:
        """End the loop and its thread."""

        async def finish() -> None:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            await self.loop.shutdown_asyncgens()

        asyncio.run_coroutine_threadsafe(finish(), self.loop).result(_PATIENCE)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_PATIENCE)
        self.loop.close()


class Blocking:
    """Stands in for an async object: its methods block until done."""

    def __init__(self, runner: Runner, target: Any) -> None:
        self._runner = runner
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not inspect.isroutine(value):
            return value
        return lambda *args, **kwargs: self._runner.call(value, *args, **kwargs)

    def __iter__(self) -> Blocking:
        return self

    def __next__(self) -> Any:
        try:
            return self._runner.call(self._target.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Any:
        return self._runner.call(self._target.__aenter__)

    def __exit__(self, *failure: Any) -> None:
        self._runner.call(self._target.__aexit__, *failure)

    def __repr__(self) -> str:
        return repr(self._target)


def unwrap(value: Any) -> Any:
    """The async object behind a stand-in, also in a list of them; everything else is the very same object."""
    if isinstance(value, Blocking):
        return value._target
    if type(value) is list and any(isinstance(item, Blocking) for item in value):
        return [item._target if isinstance(item, Blocking) else item for item in value]
    return value


class Colour:
    """Opens stores of one colour and closes them at the end."""

    def __init__(self, name: ColourName) -> None:
        self.name = name
        self._runner = Runner() if name == "async" else None
        self._opened: list[Any] = []

    def open(self, sync: Callable[..., Any], async_: Callable[..., Any], **options: Any) -> Any:
        """A store from one of the two factories, to be used in sync style."""
        store = sync(**options) if self._runner is None else self._runner.call(async_, **options)
        self._opened.append(store)
        return store

    def close(self) -> None:
        """Close what was opened."""
        for store in reversed(self._opened):
            store.close()
        if self._runner is not None:
            self._runner.close()
