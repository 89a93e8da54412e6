"""X6-X8: channels, waiting claims, closing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from rota import StoreClosed
from rota.testing.clock import ManualClock
from rota.testing.tck.base import Started, Suite

# What the contract allows between something becoming claimable and the return of who waits for it (X7).
PROMPT = 1.0


class WakeupClauses(Suite):
    """Notifications and waiting (X6-X8). These tests run in real time."""

    @pytest.fixture
    def live(self, opener: Callable[..., Any]) -> Any:
        """A store on the real clock."""
        return opener()

    # -- X6 ------------------------------------------------------------------------------------------------------------

    def test_X6_everyone_who_listens_hears(self, live: Any) -> None:
        """Fan-out, in order, on that channel alone."""
        first, second, other = live.listen("c"), live.listen("c"), live.listen("other")
        for payload in ("a", None, "é😀"):
            live.notify("c", payload)
        live.notify("other", "x")
        assert [next(first) for _ in range(3)] == ["a", None, "é😀"]
        assert [next(second) for _ in range(3)] == ["a", None, "é😀"]
        assert next(other) == "x"
        for listener in (first, second, other):
            listener.close()

    def test_X6_nothing_is_replayed(self, live: Any) -> None:
        """Who listens later hears nothing of before."""
        live.notify("c", "before")
        listener = live.listen("c")
        live.notify("c", "after")
        assert next(listener) == "after"
        listener.close()

    def test_X6_a_waiting_listener_is_woken(self, live: Any) -> None:
        """The iterator blocks until something is notified."""
        listener = live.listen("c")
        hearing = Started(next, listener)
        time.sleep(0.1)
        assert hearing.running
        begun = time.monotonic()
        live.notify("c", "now")
        assert hearing.result() == "now"
        assert time.monotonic() - begun < PROMPT
        listener.close()

    def test_X6_a_listener_ends_after_its_timeout(self, live: Any) -> None:
        """timeout= seconds of silence end the iteration."""
        listener = live.listen("c", timeout=0.2)
        live.notify("c", "one")
        assert list(listener) == ["one"]

    def test_X6_the_payload_is_limited(self, live: Any) -> None:
        """7,000 bytes of UTF-8 pass, more do not, on every engine; other types neither."""
        listener = live.listen("c")
        live.notify("c", "é" * 3_500)
        assert next(listener) == "é" * 3_500
        with pytest.raises(ValueError, match="7000"):
            live.notify("c", "é" * 3_500 + "x")
        with pytest.raises(TypeError):
            live.notify("c", b"x")
        listener.close()

    def test_X6_a_closed_store_ends_its_listeners(self, live: Any) -> None:
        """A blocked listener raises StoreClosed within a second."""
        hearing = Started(next, live.listen("c"))
        time.sleep(0.05)
        live.close()
        with pytest.raises(StoreClosed):
            hearing.result(PROMPT + 1)

    # -- X7 ------------------------------------------------------------------------------------------------------------

    def _is_prompt(self, wait: Callable[[], Any], make_claimable: Callable[[], Any], after: float = 0.0) -> Any:
        """A waiting claim returns within a second of ``make_claimable`` (plus ``after`` seconds)."""
        waiting = Started(wait)
        time.sleep(0.05)
        assert waiting.running
        begun = time.monotonic()
        make_claimable()
        result = waiting.result()
        assert result is not None
        assert time.monotonic() - begun < after + PROMPT
        return result

    def test_X7_published_and_enqueued(self, live: Any) -> None:
        """A new item wakes who waits."""
        queue, transport = live.queue("q"), live.transport("t")
        assert self._is_prompt(lambda: queue.claim_one("w", wait=10), lambda: queue.enqueue(1)).payload == 1
        lease = self._is_prompt(lambda: transport.claim("w", wait=10), lambda: transport.publish("g", 2))
        assert lease.event == 2

    def test_X7_batches_return_at_the_first_non_empty_result(self, live: Any) -> None:
        """A waiting batch does not wait to be full."""
        queue, transport = live.queue("q"), live.transport("t")
        jobs = self._is_prompt(lambda: queue.claim_batch("w", 5, wait=10), lambda: queue.enqueue(1))
        assert len(jobs) == 1
        leases = self._is_prompt(lambda: transport.claim_batch("w", 5, wait=10), lambda: transport.publish("g", 2))
        assert len(leases) == 1

    @pytest.mark.parametrize("verb", ["ack", "nack", "release", "fail"])
    def test_X7_a_freed_group(self, live: Any, verb: str) -> None:
        """Settling the head makes the next message of its group claimable."""
        transport = live.transport("t")
        transport.publish_many([("g", 1), ("g", 2)])
        lease = transport.claim("w")
        self._is_prompt(lambda: transport.claim("v", wait=10), getattr(lease, verb))

    def test_X7_released_and_retried_jobs(self, live: Any) -> None:
        """A job given back wakes who waits."""
        queue = live.queue("q")
        queue.enqueue(1)
        job = queue.claim_one("w")
        job = self._is_prompt(lambda: queue.claim_one("v", wait=10), job.release)
        self._is_prompt(lambda: queue.claim_one("u", wait=10), lambda: job.retry(delay=0))

    def test_X7_a_delay_over(self, live: Any) -> None:
        """Nobody says anything when a delay is over: the waiter knows."""
        queue, transport = live.queue("q"), live.transport("t")
        assert self._is_prompt(lambda: queue.claim_one("w", wait=10), lambda: queue.enqueue(1, delay=0.3), 0.3)
        transport.publish("g", 1)
        lease = transport.claim("w")
        assert self._is_prompt(lambda: transport.claim("w", wait=10), lambda: lease.nack(0.3), 0.3)

    def test_X7_a_lapsed_lease(self, live: Any) -> None:
        """A crashed holder's item is taken over by who waits."""
        queue, transport = live.queue("q"), live.transport("t")
        queue.enqueue(1)
        transport.publish("g", 1)
        queue.claim_one("dead", visibility=0.4)
        assert self._is_prompt(lambda: queue.claim_one("w", wait=10), lambda: None, 0.4).attempts == 2
        transport.claim("dead", 0.4)
        assert self._is_prompt(lambda: transport.claim("w", wait=10), lambda: None, 0.4).deliveries == 2

    def test_X7_a_resumed_group_transport_or_queue(self, live: Any) -> None:
        """Each resume wakes who waits."""
        queue, transport = live.queue("q"), live.transport("t")
        queue.enqueue(1)
        queue.suspend()
        self._is_prompt(lambda: queue.claim_one("w", wait=10), queue.resume)
        transport.publish_many([("g", 1), ("h", 2)])
        transport.suspend("g")
        transport.claim("w")
        assert self._is_prompt(lambda: transport.claim("w", wait=10), lambda: transport.resume("g")).ack()
        transport.publish("i", 3)
        transport.suspend()
        self._is_prompt(lambda: transport.claim("w", wait=10), transport.resume)

    def test_X7_redriven_letters(self, live: Any) -> None:
        """A redrive wakes who waits."""
        queue, transport = live.queue("q"), live.transport("t")
        queue.enqueue(1)
        transport.publish("g", 1)
        assert queue.claim_one("w").fail()
        assert transport.claim("w").fail()
        self._is_prompt(lambda: queue.claim_one("w", wait=10), lambda: queue.redrive("all"))
        self._is_prompt(lambda: transport.claim("w", wait=10), lambda: transport.redrive("all"))

    def test_X7_a_publish_through_another_store(self, opener: Callable[..., Any]) -> None:
        """On a durable engine a second store's items are found within a second, wake-up or not."""
        first = opener()
        second = opener() if self.durable else first
        self._is_prompt(lambda: first.queue("q").claim_one("w", wait=10), lambda: second.queue("q").enqueue(1))
        self._is_prompt(lambda: first.transport("t").claim("w", wait=10), lambda: second.transport("t").publish("g", 1))

    def test_X7_wait_ends_when_it_is_over(self, live: Any) -> None:
        """Nothing claimable: None or an empty list after wait seconds."""
        queue, transport = live.queue("q"), live.transport("t")
        begun = time.monotonic()
        assert queue.claim_one("w", wait=0.2) is None
        assert transport.claim_batch("w", 3, wait=0.2) == []
        assert 0.4 <= time.monotonic() - begun < 3

    def test_X7_the_floor_holds_while_waiting(self, live: Any) -> None:
        """A group below the floor wakes, and is not handed out."""
        transport = live.transport("t")
        waiting = Started(transport.claim, "w", 30, 5, wait=10)
        time.sleep(0.05)
        transport.publish("low", 1, 1)
        time.sleep(0.1)
        assert waiting.running
        transport.publish("high", 2, 5)
        assert waiting.result(2).event == 2

    # -- X8 ------------------------------------------------------------------------------------------------------------

    def test_X8_close_releases_waiters(self, live: Any) -> None:
        """Waiting claims raise StoreClosed within a second."""
        waiting = [
            Started(live.queue("q").claim_one, "w", wait=30),
            Started(live.transport("t").claim, "w", wait=30),
        ]
        time.sleep(0.1)
        begun = time.monotonic()
        live.close()
        for each in waiting:
            with pytest.raises(StoreClosed):
                each.result()
        assert time.monotonic() - begun < PROMPT

    def test_X8_every_call_after_close_raises_store_closed(self, store: Any, clock: ManualClock) -> None:
        """One documented error; a second close is quiet."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue(1)
        transport.publish("g", 1)
        job, lease = queue.claim_one("w"), transport.claim("w")
        store.close()
        store.close()
        calls: list[Callable[[], Any]] = [
            lambda: queue.enqueue(1),
            lambda: queue.claim_one("w"),
            lambda: queue.claim_one("w", wait=1),
            lambda: queue.claim_batch("w", 0),
            lambda: queue.claim_batch("w", 0, wait=1),
            queue.stats,
            lambda: queue.get_job(1),
            job.ack,
            job.heartbeat,
            lambda: transport.publish("g", 1),
            lambda: transport.claim("w"),
            lambda: transport.claim_batch("w", 0),
            lambda: transport.claim_batch("w", 0, wait=1),
            lease.ack,
            lambda: lease.extend(5),
            transport.groups,
            lambda: store.queue("other").stats(),
            lambda: store.transport("other").stats(),
            lambda: store.notify("c"),
        ]
        for call in calls:
            with pytest.raises(StoreClosed):
                call()
        clock.advance(1)

    def test_X8_a_store_is_a_context_manager(self, opener: Callable[..., Any]) -> None:
        """Leaving the block closes it."""
        with opener() as store:
            queue = store.queue("q")
            queue.enqueue(1)
        with pytest.raises(StoreClosed):
            queue.stats()
