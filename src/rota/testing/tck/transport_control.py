"""T8-T11 and inspection: identity, the control plane, nothing stranded, options of the transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rota.codecs import JsonCodec
from rota.testing.clock import ManualClock
from rota.testing.tck.base import Started, Suite, events, step


class TransportControl(Suite):
    """Identity, suspension, inspection and options (T8-T11)."""

    # -- T8 ------------------------------------------------------------------------------------------------------------

    def test_T8_the_event_comes_back(self, transport: Any) -> None:
        """The very object where the engine keeps objects, an equal one where it encodes."""
        event = {"a": [1, {"b": None}]}
        transport.publish("g", event)
        got = transport.claim("w").event
        assert got == event
        assert (got is event) is self.keeps_objects

    def test_T8_a_codec_makes_it_round_trip(self, store: Any) -> None:
        """With a codec every claim decodes afresh, on every engine."""
        transport = store.transport("t", codec=JsonCodec())
        event = {"a": [1]}
        transport.publish("g", event)
        lease = transport.claim("w")
        assert lease.event == event
        assert lease.event is not event
        lease.event["a"].append(2)
        assert lease.nack()
        assert transport.claim("w").event == {"a": [1]}

    def test_T8_any_object_passes_where_objects_are_kept(self, transport: Any) -> None:
        """Engines that keep objects take any; those that encode refuse what JSON cannot carry."""
        event = object()
        if self.keeps_objects:
            transport.publish("g", event)
            assert transport.claim("w").event is event
        else:
            from rota import PayloadError

            with pytest.raises(PayloadError):
                transport.publish("g", event)
            assert transport.stats().messages == 0

    # -- T9 ------------------------------------------------------------------------------------------------------------

    def test_T9_a_suspended_group_is_not_claimable(self, transport: Any) -> None:
        """It keeps its order, backlog and priority; the others go on."""
        transport.publish_many([("g", 1, 5), ("g", 2), ("h", 3)])
        assert transport.suspend("g") is True
        assert transport.suspend("g") is False
        assert events(transport) == [3]
        transport.publish("g", 4)
        assert transport.resume("g") is True
        assert transport.resume("g") is False
        assert transport.groups()[0].priority == 5
        assert events(transport) == [1, 2, 4]

    def test_T9_a_suspended_group_keeps_its_turn(self, transport: Any) -> None:
        """After resume it stands where it stood."""
        transport.publish_many([(group, number) for group in "abc" for number in range(3)])
        for lease in transport.claim_batch("w", 3):
            assert lease.nack()
        transport.suspend("a")
        assert transport.claim("w").nack()
        transport.resume("a")
        assert [lease.group_id for lease in transport.claim_batch("w", 3)] == ["a", "c", "b"]

    def test_T9_a_lease_held_then_stays_valid(self, transport: Any, clock: ManualClock) -> None:
        """Suspending does not take a lease away: it may be extended and settled."""
        transport.publish_many([("g", 1), ("g", 2)])
        lease = transport.claim("w", 10)
        transport.suspend("g")
        transport.suspend()
        lease = lease.extend(20)
        clock.advance(20)
        assert lease.ack()
        assert transport.stats().messages == 1

    def test_T9_suspending_the_transport(self, transport: Any) -> None:
        """suspend() stops every group, new ones too; resume() lifts only that."""
        transport.publish("g", 1)
        assert transport.suspend() is True
        assert transport.suspend() is False
        transport.publish("h", 2)
        assert transport.claim("w") is None
        assert transport.claim_batch("w", 5) == []
        assert transport.stats().suspended is True
        transport.suspend("g")
        assert transport.resume() is True
        assert transport.resume() is False
        assert events(transport) == [2]
        assert transport.explain("g").reason == "suspended"

    def test_T9_resume_of_a_group_does_not_lift_the_transport(self, transport: Any) -> None:
        """Each suspension is lifted by its own resume."""
        transport.publish("g", 1)
        transport.suspend("g")
        transport.suspend()
        assert transport.resume("g") is True
        assert transport.claim("w") is None
        assert transport.resume() is True
        assert transport.claim("w").event == 1

    def test_T9_suspending_a_group_without_messages_holds(self, transport: Any) -> None:
        """A suspension lives apart from the group, before it exists and after it is gone."""
        assert transport.suspend("g") is True
        transport.publish("g", 1)
        assert transport.claim("w") is None
        assert transport.purge("g") == 1
        transport.publish("g", 2)
        assert transport.claim("w") is None
        assert transport.resume("g") is True
        assert transport.claim("w").event == 2

    def test_T9_resume_does_not_end_a_park_or_lease(self, transport: Any, clock: ManualClock) -> None:
        """A running park or lease still counts after resume."""
        transport.publish_many([("g", 1), ("h", 2)])
        assert transport.claim("w", 10).nack(10)
        held = transport.claim("w", 10)
        for group in ("g", "h"):
            transport.suspend(group)
            transport.resume(group)
        assert transport.claim("v") is None
        assert held.ack()
        step(clock, 10_000_001)
        assert transport.claim("v").event == 1

    def test_T9_a_suspension_survives_reopening(self, opener: Callable[..., Any], clock: ManualClock) -> None:
        """Where the engine is durable so are suspensions, of groups and of the transport."""
        first = opener(clock=clock)
        transport = first.transport("t")
        transport.publish_many([("g", 1), ("h", 2)])
        transport.suspend("g")
        other = first.transport("other")
        other.publish("x", 1)
        other.suspend()
        first.close()
        again = opener(clock=clock)
        if self.durable:
            assert events(again.transport("t")) == [2]
            assert again.transport("t").groups()[0].state == "suspended"
            assert again.transport("other").claim("w") is None
        else:
            assert again.transport("t").stats().messages == 0

    # -- Inspection ----------------------------------------------------------------------------------------------------

    def test_T9_groups_show_their_state(self, transport: Any, clock: ManualClock) -> None:
        """ready, leased, parked and suspended, with deadline and worker where there is one."""
        start = clock.now()
        transport.publish_many([("leased", 1), ("parked", 2), ("ready", 3), ("suspended", 4), ("ready", 5)])
        leases = transport.claim_batch("w-1", 2, 10)
        assert leases[1].nack(20)
        transport.suspend("suspended")
        leased, parked, ready, suspended = transport.groups()
        assert (leased.state, leased.until, leased.worker_id) == ("leased", start + 10, "w-1")
        assert (parked.state, parked.until, parked.worker_id) == ("parked", start + 20, None)
        assert (ready.state, ready.until, ready.worker_id) == ("ready", None, None)
        assert (ready.messages, ready.oldest_at, ready.last_claimed_at) == (2, start, None)
        assert (suspended.state, suspended.until) == ("suspended", None)
        assert leased.last_claimed_at == parked.last_claimed_at == start
        step(clock, 10_000_000)
        assert transport.groups()[0].state == "leased"
        step(clock, 1)
        assert transport.groups()[0].state == "ready"

    def test_T9_groups_are_filtered_and_paged(self, transport: Any) -> None:
        """By state, in code point order, from after a group id."""
        names = sorted(["Z", "a", "é", "ｚ", "😀", "b b"])
        transport.publish_many([(name, 1) for name in reversed(names)])
        assert [group.group_id for group in transport.groups()] == names
        first = transport.groups(limit=4)
        assert [group.group_id for group in transport.groups(after=first[-1].group_id)] == names[4:]
        transport.suspend("a")
        assert [group.group_id for group in transport.groups("suspended")] == ["a"]
        assert len(transport.groups("ready")) == 5
        assert transport.groups(limit=0) == []

    def test_T9_stats_count(self, transport: Any, clock: ManualClock) -> None:
        """Counts by state, dead letters, oldest ready age and next due time."""
        empty = transport.stats()
        assert (empty.groups, empty.messages, empty.oldest_ready_age, empty.next_due_at) == (0, 0, None, None)
        transport.publish_many([("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5), ("e", 6)])
        clock.advance(3)
        a, b, c = transport.claim_batch("w", 3, 10)
        assert b.nack(20)
        assert c.fail()
        transport.suspend("d")
        stats = transport.stats()
        assert (stats.groups, stats.messages, stats.ready, stats.leased, stats.parked) == (4, 5, 1, 1, 1)
        assert (stats.suspended_groups, stats.dead, stats.suspended, stats.capped) == (1, 1, False, ())
        assert stats.oldest_ready_age == 3.0
        assert stats.next_due_at == a.deadline + 0.000001

    def test_T9_stats_are_marked_when_capped(self, transport: Any) -> None:
        """Beyond 10,000 a count is given as 10,000 and named."""
        transport.publish_many([("g", number) for number in range(10_001)])
        stats = transport.stats()
        assert stats.messages == 10_000
        assert "messages" in stats.capped
        assert stats.groups == 1

    def test_T9_peek_shows_messages_without_claiming(self, transport: Any) -> None:
        """In order, from any state, changing nothing."""
        seqs = transport.publish_many([("g", number) for number in range(3)])
        transport.claim("w")
        shown = transport.peek("g", 2)
        assert [(message.seq, message.event) for message in shown] == [(seqs[0], 0), (seqs[1], 1)]
        assert [message.deliveries for message in shown] == [1, 0]
        assert transport.peek("nobody") == []

    def test_T9_purge_removes_the_messages(self, transport: Any) -> None:
        """Leased ones too: their settlements then return False. A suspension is kept."""
        transport.publish_many([("g", number) for number in range(3)] + [("h", 9)])
        lease = transport.claim("w")
        transport.suspend("g")
        assert transport.purge("g") == 3
        assert transport.purge("g") == 0
        assert not lease.ack()
        transport.publish("g", 4)
        assert events(transport) == [9]

    def test_T9_explain_names_the_first_obstacle(self, transport: Any, clock: ManualClock) -> None:
        """Why a group is not claimable now, and since when."""
        assert transport.explain("g").reason == "no messages"
        transport.publish("g", 1)
        assert transport.explain("g").claimable is True
        clock.advance(1)
        claimed_at = clock.now()
        lease = transport.claim("w-1", 10)
        clock.advance(1)
        why = transport.explain("g")
        assert (why.claimable, why.reason, why.since, why.until) == (False, "leased", claimed_at, claimed_at + 10)
        assert why.worker_id == "w-1"
        assert lease.nack(5)
        assert transport.explain("g").reason == "parked"
        assert transport.explain("g").until == clock.now() + 5
        transport.suspend("g")
        suspended = transport.explain("g")
        assert (suspended.reason, suspended.since) == ("suspended", clock.now())
        clock.advance(1)
        transport.suspend()
        assert (transport.explain("g").reason, transport.explain("g").since) == ("transport suspended", clock.now())

    # -- T10 -----------------------------------------------------------------------------------------------------------

    def test_T10_a_publish_racing_the_last_ack_is_not_stranded(self, store: Any) -> None:
        """Publishers and ackers race on groups that keep running empty: every message is delivered."""
        transport = store.transport("t")
        rounds = 150

        def publish(publisher: int) -> None:
            for number in range(rounds):
                transport.publish(f"g{number % 2}", (publisher * rounds) + number)

        seen: list[int] = []
        publishers = [Started(publish, publisher) for publisher in range(2)]
        while len(seen) < 2 * rounds:
            lease = transport.claim("w", wait=5)
            assert lease is not None, f"{2 * rounds - len(seen)} messages are stranded"
            seen.append(lease.event)
            assert lease.ack()
        for publisher in publishers:
            publisher.result()
        assert sorted(seen) == list(range(2 * rounds))
        assert transport.stats().messages == 0

    # -- T11 -----------------------------------------------------------------------------------------------------------

    def test_T11_the_first_handle_that_names_an_option_stores_it(self, store: Any) -> None:
        """Others inherit it."""
        store.transport("t", max_deliveries=1).publish("g", 1)
        other = store.transport("t")
        assert other.claim("w").nack()
        assert other.claim("w") is None
        assert other.stats().dead == 1

    def test_T11_options_are_added_one_by_one(self, store: Any) -> None:
        """A later handle may name an option nobody named before."""
        store.transport("t", max_deliveries=1).publish("g", 1)
        both = store.transport("t", poison="hold", max_deliveries=1)
        both.publish("g", 2)
        assert both.claim("w").nack()
        assert both.claim("w") is None
        assert both.explain("g").reason == "suspended"

    def test_T11_a_conflict_is_refused_naming_both(self, opener: Callable[..., Any], clock: ManualClock) -> None:
        """ValueError with the stored and the declared value, when the handle is made or at its first verb."""
        store = opener(clock=clock)
        store.transport("t", max_deliveries=3).publish("g", 1)
        stores = [store, opener(clock=clock)] if self.durable else [store]
        for each in stores:
            with pytest.raises(ValueError, match=r"max_deliveries.*(3.*5|5.*3)"):
                each.transport("t", max_deliveries=5).publish("g", 2)
        assert store.transport("t").stats().messages == 1

    def test_T11_configure_changes_options(self, store: Any) -> None:
        """configure_transport changes them for every handle, those in use too."""
        transport = store.transport("t", max_deliveries=1)
        transport.publish("g", 1)
        store.configure_transport("t", max_deliveries=3)
        for _ in range(3):
            assert transport.claim("w").nack()
        assert transport.claim("w") is None
        store.configure_transport("t", max_deliveries=None)
        transport.publish("g", 2)
        for _ in range(5):
            assert transport.claim("w").nack()
        assert transport.claim("w").deliveries == 6

    def test_T11_transports_do_not_share(self, store: Any) -> None:
        """Options, messages, suspensions and groups belong to one transport."""
        one, two = store.transport("one", max_deliveries=1), store.transport("two")
        one.publish("g", 1)
        two.publish("g", 2)
        one.suspend("g")
        assert two.claim("w").nack()
        assert two.claim("w").deliveries == 2
        assert one.claim("w") is None

    def test_T11_making_a_handle_stores_nothing(self, store: Any) -> None:
        """Handles do no I/O and reading verbs create nothing."""
        transport = store.transport("t")
        assert transport.stats().messages == 0
        assert transport.groups() == []
        assert transport.dead_letters() == []
        assert store.transports() == []
        transport.publish("g", 1)
        assert store.transports() == ["t"]
