"""The traps around publishers under way: each scenario with the guard in place, and with it taken out."""

from __future__ import annotations

import threading
import time

import pytest

from postgres.sabotage import SECOND, Running, Session, Sessions, guarded, sabotage

# -- An emptied group and a publish (T10) ------------------------------------------------------------------------------

_SKIPS = ("FOR UPDATE SKIP LOCKED)", "FOR UPDATE)")
_LOOKS_AGAIN = (
    'ELSIF EXISTS (SELECT 1 FROM "rota".messages WHERE transport = p_transport AND group_id = p_group) THEN',
    "ELSIF false THEN",
)
# PostgreSQL may forget this lock where others update the group: then the other two guard.
_LOCKS = ("AND group_id = p_group FOR KEY SHARE", "AND group_id = p_group")
_HOLDS = ("IF v_shared THEN", "IF false THEN")
_LOOKS_FOR_HOLDERS = ("ELSE false END", "ELSE true END")


@pytest.mark.parametrize(
    ("changes", "stranded"),
    [
        pytest.param({}, False, id="guarded"),
        # Waiting for the publisher would be right, too: it is the look afterwards that counts.
        pytest.param({"ack_message": [_SKIPS]}, False, id="waiting"),
        pytest.param({"ack_message": [_SKIPS, _LOOKS_AGAIN]}, True, id="sabotaged-ack"),
        pytest.param({"publish": [_LOCKS]}, False, id="forgotten-lock"),
        pytest.param({"publish": [_LOCKS, _HOLDS]}, True, id="sabotaged-publish"),
        pytest.param({"publish": [_LOCKS], "nobody_publishes": [_LOOKS_FOR_HOLDERS]}, True, id="sabotaged-look"),
    ],
)
def test_a_publish_under_way_is_not_stranded_by_the_last_ack(
    postgres_url: str, sessions: Sessions, changes: dict[str, list[tuple[str, str]]], stranded: bool
) -> None:
    for function, pieces in changes.items():
        sabotage(postgres_url, function, *pieces)
    publisher, acker, watcher = sessions(), sessions(), sessions()
    publisher.publish("g", "1")
    (lease,) = acker.claim_groups(None)
    publisher.begin()
    second = publisher.publish("g", "2")
    ack = Running(lambda: acker.call("ack_message", "t", "g", lease["token"], lease["seq"]))
    ack.settle(watcher, acker)
    publisher.commit()
    assert ack.result() is True
    found = [row["seq"] for row in acker.claim_groups(None)]
    assert found == ([] if stranded else [second])


@pytest.mark.parametrize("count", [2, 101])
@pytest.mark.parametrize("holds", [True, False])
def test_a_publish_in_bulk_whose_locks_are_forgotten(
    postgres_url: str, sessions: Sessions, count: int, holds: bool
) -> None:
    """It holds few groups in one way and many in another."""
    sabotage(postgres_url, "open_groups", ("ORDER BY group_id FOR KEY SHARE OFFSET 0", "ORDER BY group_id OFFSET 0"))
    if not holds:
        sabotage(postgres_url, "open_groups", ("IF NOT v_shared <@ v_held THEN", "IF false THEN"))
    publisher, acker, watcher = sessions(), sessions(), sessions()
    groups = [f"g{number}" for number in range(count)]
    for group in groups:
        publisher.publish(group, "1")
    leases = acker.claim_groups(None, n=count)
    publisher.begin()
    publisher.call("publish_many", None, "t", groups, ["2"] * count, [0] * count, None, None)
    tokens = [lease["token"] for lease in leases]
    ack = Running(lambda: acker.call("ack_messages", "t", tokens))
    ack.settle(watcher, acker)
    publisher.commit()
    assert ack.result() == count
    assert len(acker.claim_groups(None, n=count)) == (count if holds else 0)


def test_a_transaction_holds_few_advisory_locks(sessions: Sessions) -> None:
    """Beyond them it keeps updates off. In a savepoint a publisher never looks alone."""
    publisher, watcher = sessions(), sessions()
    groups = [f"g{number}" for number in range(120)]
    for group in groups:
        publisher.publish(group, "1")
    for _ in range(2):
        publisher.begin()
        publisher.execute("SAVEPOINT within")
        for group in groups:
            publisher.publish(group, "2")
        ((locks,),) = watcher.connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchall()
        assert locks == 100
        assert len(watcher.claim_groups(None, n=120, visibility=1)) == 100
        publisher.commit()
        assert watcher.connection.execute("SELECT FROM pg_locks WHERE locktype = 'advisory'").fetchall() == []
        time.sleep(0.01)


def test_a_publish_waits_for_the_ack_that_empties_its_group(sessions: Sessions) -> None:
    """The group is deleted first: a publisher that comes then makes a new one, with a seq drawn later."""
    publisher, acker, watcher = sessions(), sessions(), sessions()
    publisher.publish("g", "1")
    (lease,) = acker.claim_groups(None)
    acker.begin()
    assert acker.call("ack_message", "t", "g", lease["token"], lease["seq"])
    publish = Running(lambda: publisher.publish("g", "2"))
    publish.settle(watcher, publisher)
    assert not publish.done
    acker.commit()
    seq = publish.result()
    assert [row["seq"] for row in acker.claim_groups(None)] == [seq]


def drain(publisher: Session, acker: Session) -> None:
    """Leave a group without messages: a publisher in flight kept it from being forgotten, and then gave up."""
    publisher.publish("g", "1")
    (lease,) = acker.claim_groups(None)
    publisher.begin()
    publisher.publish("g", "2")
    assert acker.call("ack_message", "t", "g", lease["token"], lease["seq"])
    publisher.execute("ROLLBACK")


def test_a_group_drained_and_published_to_again_is_a_new_one(sessions: Sessions) -> None:
    """T5: what a publisher in flight kept from being forgotten is forgotten by the next publish."""
    publisher, acker = sessions(), sessions()
    drain(publisher, acker)
    seq = publisher.call("publish", None, "t", "g", "3", 7, None, None)
    (again,) = acker.claim_groups(None)
    assert (again["seq"], again["priority"], again["turn"]) == (seq, 7, seq - 2**62)


def test_a_drained_group_without_messages_goes_with_the_next_claim(sessions: Sessions) -> None:
    publisher, acker = sessions(), sessions()
    drain(publisher, acker)
    assert acker.claim_groups(None) == []
    assert acker.connection.execute("SELECT count(*) FROM rota.groups").fetchone() == (0,)


@guarded
def test_publishers_race_the_last_ack(postgres_url: str, sessions: Sessions, guarded: bool) -> None:
    """Without made interleavings: in each round one thread acks a group's last message, another one publishes to it."""
    if not guarded:
        # The moment between the look at the group and the message, a little longer.
        lock, none = (text + " OFFSET 0) held;" for text in _LOCKS)
        sabotage(postgres_url, "publish", (lock, none + " PERFORM pg_sleep(0.0005);"), _HOLDS)
    acker, publisher = sessions(), sessions()
    meeting = threading.Barrier(2)
    rounds, stranded = 400, 0

    def publish() -> None:
        for number in range(rounds):
            publisher.publish(f"g{number}", "1")
            for _ in range(2):
                meeting.wait()
            publisher.publish(f"g{number}", "2")
            for _ in range(2):
                meeting.wait()

    publishing = Running(publish)
    for number in range(rounds):
        meeting.wait()
        (lease,) = acker.claim_groups(None)
        meeting.wait()
        # Now one is first, now the other.
        time.sleep(number % 10 * 0.00005)
        assert acker.call("ack_message", "t", f"g{number}", lease["token"], lease["seq"])
        meeting.wait()
        found = acker.claim_groups(None)
        stranded += not found
        for lease in found:
            assert acker.call("ack_message", "t", f"g{number}", lease["token"], lease["seq"])
        meeting.wait()
    publishing.result()
    assert (stranded == 0) is guarded


# -- Late commits (T1, T2) ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saboteur", [None, "ack takes the head", "claim looks at the head only"])
def test_a_lower_seq_committed_late_waits_for_the_lease(
    postgres_url: str, sessions: Sessions, saboteur: str | None
) -> None:
    if saboteur == "ack takes the head":
        sabotage(
            postgres_url,
            "ack_message",
            (
                "AND group_id = p_group AND seq = p_seq;",
                'AND group_id = p_group AND seq = (SELECT min(seq) FROM "rota".messages'
                " WHERE transport = p_transport AND group_id = p_group);",
            ),
        )
    elif saboteur is not None:
        sabotage(
            postgres_url,
            "claim_groups",
            (
                "WHERE lane = 1 AND suspended = 0 AND NOT drained AND transport = p_transport "
                "AND priority = p_lanes[1]\n                    AND turn >= v_from",
                'WHERE leased_seq IS DISTINCT FROM (SELECT min(m.seq) FROM "rota".messages m WHERE m.group_id ='
                " groups.group_id) AND turn >= v_from",
            ),
            ("AND NOT coalesce(deadline >= v_now, false)", ""),
        )
        sabotage(postgres_url, "lanes", ("v_lanes integer[] := '{}';", "v_lanes integer[] := '{0}';"))
    early, late, worker = sessions(), sessions(), sessions()
    early.publish("g", "head")
    early.begin()
    lower = early.publish("g", "A")
    higher = late.publish("g", "B")
    (lease,) = worker.claim_groups(None)
    assert worker.call("ack_message", "t", "g", lease["token"], lease["seq"])
    (lease,) = worker.claim_groups(None, visibility=60 * SECOND)
    assert lease["seq"] == higher
    early.commit()
    second = [row["seq"] for row in late.claim_groups(None)]
    settled = worker.call("ack_message", "t", "g", lease["token"], lease["seq"])
    left = [seq for (seq,) in worker.connection.execute("SELECT seq FROM rota.messages").fetchall()]
    right = second == [] and settled and left == [lower]
    assert right is (saboteur is None)
    if right:
        assert [row["seq"] for row in late.claim_groups(None)] == [lower]


@pytest.mark.parametrize(
    ("changes", "hidden"),
    [
        pytest.param({}, False, id="guarded"),
        pytest.param({"claim_groups": [("OFFSET 0 FOR UPDATE SKIP LOCKED)", "OFFSET 0)")]}, True, id="no-lock"),
        pytest.param({"publish": [_LOCKS]}, False, id="forgotten-lock"),
        pytest.param({"publish": [_LOCKS], "nobody_publishes": [_LOOKS_FOR_HOLDERS]}, True, id="sabotaged-look"),
    ],
)
def test_the_lower_bound_of_a_group_never_hides_a_message(
    postgres_url: str, sessions: Sessions, changes: dict[str, list[tuple[str, str]]], hidden: bool
) -> None:
    """A claim says below which seq nothing can come any more: only where no publisher is under way."""
    sabotage(postgres_url, "claim_groups", ("IF v_tokens[1] % 7 = 0 THEN", "IF true THEN"))
    for function, pieces in changes.items():
        sabotage(postgres_url, function, *pieces)
    early, worker = sessions(), sessions()
    early.publish("g", "head")
    early.begin()
    lower = early.publish("g", "A")
    higher = worker.publish("g", "B")
    for _ in range(2):
        (lease,) = worker.claim_groups(None)
        assert worker.call("ack_message", "t", "g", lease["token"], lease["seq"])
        last = worker.publish("g", "C")
    assert lease["seq"] == higher
    # Claims the message after B, with A still under way.
    (lease,) = worker.claim_groups(None)
    assert worker.call("give_up", None, "t", "g", lease["token"], lease["seq"], 0, None, 1)
    early.commit()
    (lease,) = worker.claim_groups(None)
    assert (lease["seq"] == lower) is not hidden
    assert last > lower
