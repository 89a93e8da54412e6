"""D1-D4: what a letter keeps, paging, purging, redriving, error texts."""

from __future__ import annotations

from typing import Any

import pytest

from rota.testing.clock import ManualClock
from rota.testing.tck.base import Suite, events, payloads, step


class DeadLetterClauses(Suite):
    """Dead letters (D)."""

    # -- D1 ------------------------------------------------------------------------------------------------------------

    def test_D1_a_job_letter_keeps_the_whole_job(self, queue: Any, clock: ManualClock) -> None:
        """Payload, counters, reason, both errors and the time."""
        enqueued = clock.now()
        id = queue.enqueue({"n": 1}, name="mail", priority=4, expires=900, key="k", headers={"h": "v"}, max_attempts=2)
        assert queue.claim_one("w").release()
        assert queue.claim_one("w").retry("first", delay=1)
        clock.advance(1)
        assert queue.claim_one("w-9").fail("second")
        letter = queue.dead_letters()[0]
        assert (letter.id, letter.queue, letter.name, letter.payload) == (id, "q", "mail", {"n": 1})
        assert (letter.priority, letter.key, letter.headers) == (4, "k", {"h": "v"})
        assert (letter.attempts, letter.max_attempts, letter.releases) == (2, 2, 1)
        assert (letter.reason, letter.last_error, letter.previous_error) == ("failed", "second", "first")
        assert (letter.enqueued_at, letter.run_at, letter.expires_at) == (enqueued, enqueued + 1, enqueued + 900)
        assert (letter.died_at, letter.worker_id) == (clock.now(), "w-9")

    def test_D1_a_message_letter_keeps_the_whole_message(self, transport: Any, clock: ManualClock) -> None:
        """Event, group, counters, reason, both errors and the time."""
        published = clock.now()
        seq = transport.publish("g", {"n": 1}, 4, key="k", headers={"h": "v"})
        assert transport.claim("w").nack(error="first")
        clock.advance(1)
        assert transport.claim("w").fail()
        letter = transport.dead_letters()[0]
        assert (letter.seq, letter.transport, letter.group_id, letter.event) == (seq, "t", "g", {"n": 1})
        assert (letter.priority, letter.key, letter.headers, letter.deliveries) == (4, "k", {"h": "v"}, 2)
        assert (letter.reason, letter.last_error, letter.previous_error) == ("failed", "failed", "first")
        assert (letter.published_at, letter.died_at) == (published, clock.now())

    def test_D1_the_reasons(self, store: Any, clock: ManualClock) -> None:
        """failed, max attempts exceeded, max deliveries exceeded, expired."""
        queue, transport = store.queue("q"), store.transport("t", max_deliveries=1)
        queue.enqueue(1)
        assert queue.claim_one("w").fail("x")
        queue.enqueue(2, max_attempts=1)
        assert queue.claim_one("w").retry("y")
        queue.enqueue(3, max_attempts=1)
        queue.claim_one("w", visibility=1)
        clock.advance(2)
        assert queue.claim_one("w") is None
        queue.enqueue(4, expires=0)
        assert queue.sweep_expired() == 1
        reasons = [letter.reason for letter in queue.dead_letters()]
        assert reasons == ["failed", "max attempts exceeded", "max attempts exceeded", "expired"]
        transport.publish("g", 1)
        assert transport.claim("w").nack()
        assert transport.claim("w") is None
        assert [letter.reason for letter in transport.dead_letters()] == ["max deliveries exceeded"]

    def test_D1_a_dead_item_is_in_one_place(self, store: Any) -> None:
        """Dead and no longer live: not claimable, not counted, in the letters once."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue(1)
        transport.publish("g", 1)
        assert queue.claim_one("w").fail()
        assert transport.claim("w").fail()
        stats, counts = queue.stats(), transport.stats()
        assert (stats.pending, stats.processing, stats.dead) == (0, 0, 1)
        assert (counts.messages, counts.groups, counts.dead) == (0, 0, 1)
        assert len(queue.dead_letters()) == len(transport.dead_letters()) == 1

    # -- D2 ------------------------------------------------------------------------------------------------------------

    def test_D2_letters_are_paged_by_letter_id(self, store: Any) -> None:
        """Ascending, exclusive after, by group for a transport."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue_many(list(range(5)))
        transport.publish_many([(f"g{number % 2}", number) for number in range(5)])
        while (job := queue.claim_one("w")) is not None:
            assert job.fail()
        while (lease := transport.claim("w")) is not None:
            assert lease.fail()
        for source in (queue, transport):
            every = source.dead_letters()
            ids = [letter.letter_id for letter in every]
            assert ids == sorted(set(ids))
            assert len(ids) == 5
            assert source.dead_letters(2) == every[:2]
            assert source.dead_letters(limit=2, after=ids[1]) == every[2:4]
            assert source.dead_letters(after=ids[4]) == []
            assert source.dead_letters(0) == []
        assert [letter.event for letter in transport.dead_letters(group_id="g1")] == [1, 3]
        assert transport.dead_letters(group_id="nobody") == []

    def test_D2_purge_dead_by_id_or_age(self, store: Any, clock: ManualClock) -> None:
        """By letter ids (unknown ones passed over), by age at that very instant, or all."""
        queue, transport = store.queue("q"), store.transport("t")
        for number in range(4):
            queue.enqueue(number)
            assert queue.claim_one("w").fail()
            transport.publish("g", number)
            assert transport.claim("w").fail()
            clock.advance(10)
        for source in (queue, transport):
            letters = source.dead_letters()
            assert source.purge_dead([letters[1].letter_id, 10**12, -3, letters[1].letter_id]) == 1
            # They died 40, 20 and 10 seconds ago.
            assert source.purge_dead(older_than=40.000001) == 0
            assert source.purge_dead(older_than=40) == 1
            assert source.stats().dead == 2
            assert source.purge_dead([]) == 0
            assert source.purge_dead("all") == 2
            assert source.dead_letters() == []

    def test_D2_letter_ids_are_not_job_ids(self, store: Any) -> None:
        """Ids of purge_dead and redrive are letter ids; a purged letter's job is unknown."""
        queue = store.queue("q")
        ids = queue.enqueue_many([1, 2, 3, 4, 5])
        jobs = queue.claim_batch("w", 5)
        assert jobs[4].fail()
        letter = queue.dead_letters()[0]
        assert letter.id == ids[4]
        assert queue.purge_dead([letter.letter_id]) == 1
        assert queue.get_job(ids[4]) is None

    def test_D2_retention_of_a_transport(self, store: Any, clock: ManualClock) -> None:
        """sweep deletes letters at died_at + dead_letter_retention and says how many."""
        transport = store.transport("t", dead_letter_retention=10)
        transport.publish("g", 1)
        assert transport.claim("w").fail()
        step(clock, 9_999_999)
        assert transport.sweep() == 0
        step(clock, 1)
        assert transport.sweep() == 1
        assert transport.dead_letters() == []

    def test_D2_no_retention_is_for_ever(self, store: Any, clock: ManualClock) -> None:
        """Without retention nothing is swept."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue(1)
        transport.publish("g", 1)
        assert queue.claim_one("w").fail()
        assert transport.claim("w").fail()
        clock.advance(10**9)
        assert transport.sweep() == 0
        queue.sweep_expired()
        assert queue.stats().dead == transport.stats().dead == 1

    # -- D3 ------------------------------------------------------------------------------------------------------------

    def test_D3_a_redriven_job_is_as_new(self, queue: Any, clock: ManualClock) -> None:
        """Same id, payload, headers and priority; no attempts, ready now, no expiry."""
        id = queue.enqueue({"n": 1}, priority=4, expires=50, headers={"h": "v"}, max_attempts=1, delay=-9)
        assert queue.claim_one("w").fail("broken")
        clock.advance(100)
        assert queue.redrive("all") == [id]
        record = queue.get_job(id)
        assert (record.state, record.attempts, record.run_at, record.expires_at) == ("pending", 0, clock.now(), None)
        assert (record.payload, record.headers, record.priority) == ({"n": 1}, {"h": "v"}, 4)
        assert (record.worker_id, record.died_at, record.last_error) == (None, None, "broken")
        assert queue.dead_letters() == []
        assert queue.claim_one("w").attempts == 1

    def test_D3_redrive_by_id_keeps_the_order(self, queue: Any) -> None:
        """Chosen letters, unknown ids passed over, in the order of the old ids whatever the order asked for."""
        ids = queue.enqueue_many([1, 2, 3])
        first, second, third = queue.claim_batch("w", 3)
        for job in (third, first, second):
            assert job.fail()
        letters = {letter.id: letter.letter_id for letter in queue.dead_letters()}
        assert queue.redrive([letters[ids[2]], 10**12, letters[ids[0]]]) == [ids[0], ids[2]]
        assert [letter.id for letter in queue.dead_letters()] == [ids[1]]
        assert payloads(queue) == [1, 3]

    def test_D3_tail_gives_a_new_seq(self, transport: Any) -> None:
        """At the tail of the group, in the order of the old seqs."""
        seqs = transport.publish_many([("g", number) for number in range(4)])
        for _ in range(2):
            assert transport.claim("w").fail()
        fresh = transport.redrive("all")
        assert len(fresh) == 2
        assert min(fresh) > max(seqs)
        assert fresh == sorted(fresh)
        assert [message.event for message in transport.peek("g")] == [2, 3, 0, 1]
        assert [message.deliveries for message in transport.peek("g")] == [0, 0, 0, 0]
        assert events(transport) == [2, 3, 0, 1]

    def test_D3_original_gives_the_old_seq(self, transport: Any) -> None:
        """Back at its old place in the order."""
        seqs = transport.publish_many([("g", number) for number in range(4)])
        assert transport.claim("w").fail()
        assert transport.claim("w").ack()
        assert transport.claim("w").fail()
        assert transport.redrive("all", position="original") == [seqs[0], seqs[2]]
        assert events(transport) == [0, 2, 3]

    def test_D3_a_vanished_group_is_made_anew(self, transport: Any) -> None:
        """With the letter's priority; an existing group keeps its own."""
        transport.publish("g", 1, 7)
        transport.publish("h", 2, 7)
        for _ in range(2):
            assert transport.claim("w").fail()
        transport.publish("h", 3, 1)
        transport.redrive("all")
        assert {group.group_id: group.priority for group in transport.groups()} == {"g": 7, "h": 1}

    def test_D3_a_key_taken_meanwhile_is_dropped(self, store: Any, clock: ManualClock) -> None:
        """The redriven item gives way; with the key free it holds it again."""
        queue, transport = store.queue("q", key_ttl=10), store.transport("t", key_ttl=10)
        old, seq = queue.enqueue(1, key="k"), transport.publish("g", 1, key="k")
        assert queue.claim_one("w").fail()
        assert transport.claim("w").fail()
        clock.advance(10)
        new, newer = queue.enqueue(2, key="k"), transport.publish("h", 2, key="k")
        assert newer > seq
        queue.redrive("all")
        transport.redrive("all")
        assert (queue.get_job(old).key, queue.get_job(new).key) == (None, "k")
        assert (transport.peek("g")[0].key, transport.peek("h")[0].key) == (None, "k")
        assert queue.enqueue(3, key="k") == new
        assert transport.publish("i", 3, key="k") == newer

    def test_D3_a_redriven_item_holds_its_key_again(self, store: Any, clock: ManualClock) -> None:
        """While it lives, also beyond the key's time; a message under its new seq."""
        queue, transport = store.queue("q", key_ttl=10), store.transport("t", key_ttl=10)
        id = queue.enqueue(1, key="k")
        transport.publish("g", 1, key="k")
        assert queue.claim_one("w").fail()
        assert transport.claim("w").fail()
        clock.advance(100)
        assert queue.redrive("all") == [id]
        seqs = transport.redrive("all")
        assert queue.enqueue(2, key="k") == id
        assert transport.publish("g", 2, key="k") == seqs[0]

    def test_D3_of_two_letters_with_one_key_the_older_holds_it(self, store: Any, clock: ManualClock) -> None:
        """Redriven together, a key still stands for one living item."""
        queue, transport = store.queue("q", key_ttl=10), store.transport("t", key_ttl=10)
        ids = []
        for number in range(2):
            ids.append(queue.enqueue(number, key="k"))
            transport.publish(f"g{number}", number, key="k")
            assert queue.claim_one("w").fail()
            assert transport.claim("w").fail()
            clock.advance(10)
        assert queue.redrive("all") == ids
        seqs = transport.redrive("all")
        assert [queue.get_job(id).key for id in ids] == ["k", None]
        assert [transport.peek(group)[0].key for group in ("g0", "g1")] == ["k", None]
        assert queue.enqueue(3, key="k") == ids[0]
        assert transport.publish("g2", 3, key="k") == seqs[0]

    def test_D3_redrive_does_not_resume(self, store: Any) -> None:
        """A suspended group stays suspended."""
        transport = store.transport("t", poison="hold")
        transport.publish("g", 1)
        assert transport.claim("w").fail()
        transport.redrive("all")
        assert transport.claim("w") is None
        assert transport.groups()[0].state == "suspended"

    @pytest.mark.parametrize("ids", [[], [10**12], [-1]])
    def test_D3_nothing_to_redrive(self, store: Any, ids: list[int]) -> None:
        """Unknown letters are passed over."""
        assert store.queue("q").redrive(ids) == []
        assert store.transport("t").redrive(ids) == []

    # -- D4 ------------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("error", ["a\0b", "a\ud800b", "\0", "😀\0\udfff"])
    def test_D4_error_texts_are_cleaned(self, store: Any, error: str) -> None:
        """NUL and lone surrogates are replaced; the settlement happens (case 029)."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue(1)
        transport.publish("g", 1)
        assert queue.claim_one("w").retry(error, delay=0)
        assert queue.claim_one("w").fail(error)
        assert transport.claim("w").nack(error=error)
        assert transport.claim("w").fail(error)
        for source in (queue, transport):
            letter = source.dead_letters()[0]
            assert letter.last_error == letter.previous_error
            assert "\0" not in letter.last_error
            assert letter.last_error.encode().decode() == letter.last_error
            assert "\ufffd" in letter.last_error

    def test_D4_error_texts_are_cut(self, store: Any) -> None:
        """To 64 KiB of UTF-8, at a character's border."""
        queue = store.queue("q")
        for text in ("x" * 5_000_000, "é" * 5_000_000, "x" + "😀" * 100_000):
            queue.enqueue(1)
            assert queue.claim_one("w").fail(text)
            kept = queue.dead_letters()[-1].last_error
            assert 65_530 <= len(kept.encode()) <= 65_536
            assert text.startswith(kept)

    def test_D4_an_exception_that_cannot_be_printed(self, queue: Any) -> None:
        """Its type is kept; the settlement happens."""

        class Unprintable(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no")

        queue.enqueue(1)
        assert queue.claim_one("w").fail(Unprintable())
        assert "Unprintable" in queue.dead_letters()[0].last_error

    def test_D4_one_bad_error_spoils_no_batch(self, queue: Any) -> None:
        """The other jobs of a claimed batch are unaffected (case 029)."""
        queue.enqueue_many([1, 2, 3])
        first, second, third = queue.claim_batch("w", 3)
        assert first.ack()
        assert second.retry("\0\ud800" * 100_000)
        assert third.ack()
        assert queue.stats().processing == 0
