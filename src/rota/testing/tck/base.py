"""What every class of the suite stands on: fixtures, and a few helpers that say in one word what tests do often."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.testing.clock import ManualClock
from rota.testing.colours import Colour

MICROSECOND = timedelta(microseconds=1)


class Suite:
    """What an engine's test class says of itself, and the fixtures of the suite."""

    durable: bool = False
    """Whether opening the same place again shows what was stored before."""
    keeps_objects: bool = False
    """Whether a transport without a codec hands out the very object that was published (T8)."""
    place: Path
    """A fresh directory for each test."""

    def open(self, **options: Any) -> Any:
        """A sync store at ``self.place``."""
        raise NotImplementedError("say in your test class how a store of your engine is opened")

    def aopen(self, **options: Any) -> Any:
        """An async store at ``self.place``, as an awaitable."""
        raise NotImplementedError("say in your test class how an async store of your engine is opened")

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.place = tmp_path

    @pytest.fixture(params=["sync", "async"])
    def colour(self, request: pytest.FixtureRequest) -> Iterator[Colour]:
        """Which facade the test runs on."""
        colour = Colour(request.param)
        try:
            yield colour
        finally:
            colour.close()

    @pytest.fixture
    def opener(self, colour: Colour) -> Callable[..., Any]:
        """Opens stores of this colour, closed after the test."""
        return lambda **options: colour.open(self.open, self.aopen, **options)

    @pytest.fixture
    def clock(self) -> ManualClock:
        """The clock of ``store``."""
        return ManualClock()

    @pytest.fixture
    def store(self, opener: Callable[..., Any], clock: ManualClock) -> Any:
        """A store on ``clock``."""
        return opener(clock=clock)

    @pytest.fixture
    def queue(self, store: Any) -> Any:
        """A queue with the default stamp."""
        return store.queue("q")

    @pytest.fixture
    def transport(self, store: Any) -> Any:
        """A transport with the default options."""
        return store.transport("t")


def step(clock: ManualClock, microseconds: int) -> None:
    """Move the clock by exact microseconds."""
    clock.advance(timedelta(microseconds=microseconds))


def events(transport: Any, *, ack: bool = True) -> list[Any]:
    """Claim until nothing is claimable, acking each lease (or keeping it): the events in the order they came."""
    found: list[Any] = []
    while (lease := transport.claim("w")) is not None:
        found.append(lease.event)
        if ack:
            assert lease.ack()
    return found


def payloads(queue: Any, *, ack: bool = True) -> list[Any]:
    """Claim until nothing is claimable, acking each job (or keeping it): the payloads in the order they came."""
    found: list[Any] = []
    while (job := queue.claim_one("w")) is not None:
        found.append(job.payload)
        if ack:
            assert job.ack()
    return found


class Started:
    """A call under way in another thread."""

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._result: Any = None
        self._error: BaseException | None = None

        def run() -> None:
            try:
                self._result = function(*args, **kwargs)
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the call has not returned yet."""
        return self._thread.is_alive()

    def result(self, patience: float = 10.0) -> Any:
        """What the call returned or raised; fails if it does not end in ``patience`` seconds."""
        self._thread.join(patience)
        assert not self._thread.is_alive(), f"the call did not return within {patience} s"
        if self._error is not None:
            raise self._error
        return self._result
