"""The traps of one statement's snapshot and of locks: each scenario with the guard in place, and with it taken out.

The interleavings are made, not waited for: one session stays in a transaction while another one runs into it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from postgres.sabotage import SECOND, Running, Session, Sessions, guarded, sabotage

# -- One statement's snapshot is older than the locks it takes ---------------------------------------------------------

# The claim that reads the head in the statement that locks the group.
STALE_CLAIM = """
    RETURN QUERY WITH picked AS MATERIALIZED (
        SELECT g.group_id, g.turn, m.* FROM "rota".groups g CROSS JOIN LATERAL (
            SELECT seq, event, headers, deliveries, published_at FROM "rota".messages
            WHERE transport = p_transport AND group_id = g.group_id ORDER BY seq LIMIT 1) m
        WHERE g.lane = 1 AND g.transport = p_transport ORDER BY g.turn LIMIT p_n FOR NO KEY UPDATE OF g)
    UPDATE "rota".groups g SET lane = 0, token = nextval('"rota".tokens'), leased_seq = p.seq, deadline = 0
    FROM picked p WHERE g.transport = p_transport AND g.group_id = p.group_id
    RETURNING p.seq, g.group_id, p.event, g.token, false, 1::bigint, g.deadline, 0::bigint, p.headers, p.published_at,
        p.turn, '{}';
    RETURN;
"""


@guarded
def test_a_claim_never_hands_out_a_message_acked_meanwhile(
    postgres_url: str, sessions: Sessions, guarded: bool
) -> None:
    """A lapsed lease, its group free again, is settled late while somebody claims."""
    if not guarded:
        sabotage(postgres_url, "claim_groups", ("    v_now := coalesce(", STALE_CLAIM + "    v_now := coalesce("))
    late, claimer, watcher = sessions(), sessions(), sessions()
    first, second = late.publish("g", "1"), late.publish("g", "2")
    (lease,) = late.claim_groups(now=0)
    assert lease["seq"] == first
    late.call("free_lapsed", 10 * SECOND, "t", 0, 10)
    late.begin()
    assert late.call("ack_message", "t", "g", lease["token"], first)
    claim = Running(lambda: claimer.claim_groups(now=11 * SECOND))
    claim.settle(watcher, claimer)
    late.commit()
    given = [row["seq"] for row in claim.result()]
    if guarded:
        assert given in ([], [second])
        assert given or [row["seq"] for row in claimer.claim_groups(now=12 * SECOND)] == [second]
    else:
        assert given == [first]


@guarded
def test_a_claim_never_waits_for_a_lock(postgres_url: str, sessions: Sessions, guarded: bool) -> None:
    if not guarded:
        sabotage(postgres_url, "claim_groups", ("FOR NO KEY UPDATE SKIP LOCKED", "FOR NO KEY UPDATE"))
        sabotage(postgres_url, "claim_jobs", ("FOR UPDATE SKIP LOCKED", "FOR UPDATE"))
    holder, claimer, watcher = sessions(), sessions(), sessions()
    for number in range(3):
        holder.publish(f"g{number}", "1")
        holder.enqueue("1")
    holder.begin()
    holder.execute("SELECT 1 FROM rota.groups WHERE group_id = 'g0' FOR UPDATE")
    holder.execute("SELECT 1 FROM rota.jobs ORDER BY id LIMIT 1 FOR UPDATE")
    for claim, count in ((lambda: claimer.claim_groups(None, 5), 2), (lambda: claimer.claim_jobs(None, 5), 2)):
        running = Running(claim)
        running.settle(watcher, claimer)
        assert running.done is guarded
        if guarded:
            assert len(running.result()) == count
        else:
            claimer.connection.cancel()
            with pytest.raises(psycopg.errors.QueryCanceled):
                running.result()


# -- The clock is read once the lock is held (C7) ----------------------------------------------------------------------

_EARLY = ("\nBEGIN\n", '\nBEGIN\n    v_now := coalesce(p_now, "rota".clock_us());\n')


@guarded
@pytest.mark.parametrize("verb", ["heartbeat", "ack", "ack_batch", "retry", "extend"])
def test_who_waits_past_the_deadline_is_too_late(
    postgres_url: str, sessions: Sessions, verb: str, guarded: bool
) -> None:
    function = {
        "heartbeat": "heartbeat_jobs",
        "ack": "ack_job",
        "ack_batch": "ack_jobs",
        "retry": "retry_job",
        "extend": "extend_groups",
    }[verb]
    if not guarded:
        late_clock = 'v_now := coalesce(p_now, "rota".clock_us());'
        sabotage(postgres_url, function, (late_clock, ""), _EARLY)
    blocker, worker, watcher = sessions(), sessions(), sessions()
    # Renewals wait for 200 ms at most, which says nothing of what they do when they get their lock after a longer time.
    worker.execute("ALTER FUNCTION rota.heartbeat_jobs SET lock_timeout = '60s'")
    worker.execute("ALTER FUNCTION rota.extend_groups SET lock_timeout = '60s'")
    worker.enqueue("1")
    worker.publish("g", "1")
    (job,) = worker.claim_jobs(None, visibility=SECOND // 4)
    (lease,) = worker.claim_groups(None, visibility=SECOND // 4)
    blocker.begin()
    blocker.execute("SELECT 1 FROM rota.jobs FOR UPDATE")
    blocker.execute("SELECT 1 FROM rota.groups FOR NO KEY UPDATE")
    fence = ("q", job["id"], job["token"], "w")
    values: tuple[Any, ...] = {
        "heartbeat": (None, "q", [job["id"]], [job["token"]], ["w"], [SECOND]),
        "ack": (None, *fence, None),
        "ack_batch": (None, "q", "w", [job["id"]], [job["token"]]),
        "retry": (None, *fence, None, 0),
        "extend": (None, "t", ["g"], [lease["token"]], SECOND),
    }[verb]
    call = Running(lambda: worker.call(function, *values))
    call.settle(watcher, worker)
    assert not call.done
    time.sleep(0.4)
    blocker.commit()
    accepted = call.result() not in (False, 0, [None])
    assert accepted is not guarded


# -- Batches lock in one order (case 041) ------------------------------------------------------------------------------


@guarded
@pytest.mark.parametrize("what", ["jobs", "groups"])
def test_batches_in_opposite_orders_do_not_deadlock(
    postgres_url: str, sessions: Sessions, what: str, guarded: bool
) -> None:
    # Each lock takes a moment, so that two batches meet in the middle.
    begin = "    -- In one order everywhere.\n"
    first, second = sessions(), sessions()
    size = 30
    if what == "jobs":
        for _ in range(size):
            first.enqueue("1")
        rows = first.claim_jobs(None, size, 60 * SECOND)
        columns: list[list[Any]] = [[row["id"] for row in rows], [row["token"] for row in rows]]
        function, head = "ack_jobs", (None, "q", "w")
        if not guarded:
            one_by_one = (
                'FOR i IN 1 .. cardinality(p_ids) LOOP PERFORM pg_sleep(0.002) FROM (SELECT 1 FROM "rota".jobs'
                " WHERE id = p_ids[i] FOR UPDATE) j; END LOOP;\n"
            )
            sabotage(postgres_url, function, (begin, one_by_one))
    else:
        for number in range(size):
            first.publish(f"g{number:02}", "1")
        rows = first.claim_groups(None, size, 60 * SECOND)
        columns = [[row["token"] for row in rows]]
        function, head = "ack_messages", ("t",)
        if not guarded:
            one_by_one = (
                'FOR i IN 1 .. cardinality(p_tokens) LOOP PERFORM pg_sleep(0.002) FROM (SELECT 1 FROM "rota".groups'
                " WHERE token = p_tokens[i] FOR NO KEY UPDATE) g; END LOOP;\n"
            )
            sabotage(postgres_url, function, (begin, one_by_one))
    forth = Running(lambda: first.call(function, *head, *columns))
    back = Running(lambda: second.call(function, *head, *[column[::-1] for column in columns]))
    counts, deadlocks = [], 0
    for running in (forth, back):
        try:
            counts.append(running.result())
        except psycopg.errors.DeadlockDetected:
            deadlocks += 1
    assert (deadlocks == 0) is guarded
    if guarded:
        assert sum(counts) == size


@guarded
def test_groups_are_made_in_one_order(postgres_url: str, sessions: Sessions, guarded: bool) -> None:
    """Whoever waits for the first one has not made the second yet: two such batches would wait for each other."""
    if not guarded:
        sabotage(postgres_url, "open_groups", ('ORDER BY made.group_id COLLATE "C"', ""))
    holder, batch, other, watcher = (sessions() for _ in range(4))
    holder.begin()
    holder.publish("a", "1")
    both = Running(lambda: batch.call("publish_many", None, "t", ["z", "a"], ["1", "2"], [0, 0], None, None))
    both.settle(watcher, batch)
    assert not both.done
    one = Running(lambda: other.publish("z", "1"))
    one.settle(watcher, other)
    assert one.done is guarded
    holder.commit()
    assert len(both.result()) == 2
    one.result()


# -- Suspensions and groups just being made (T9) -----------------------------------------------------------------------


@guarded
@pytest.mark.parametrize("publisher_first", [True, False])
def test_a_group_made_while_it_is_suspended_is_suspended(
    postgres_url: str, sessions: Sessions, publisher_first: bool, guarded: bool
) -> None:
    """Neither sees what the other one has not committed: they have to meet at the group's row."""
    if not guarded:
        sabotage(
            postgres_url, "suspend_group", ("VALUES (p_transport, p_group, 0, 0, true)", "SELECT '', '', 0, 0, true")
        )
    operator, publisher, watcher = sessions(), sessions(), sessions()
    first, second = (publisher, operator) if publisher_first else (operator, publisher)
    calls: dict[Session, Callable[[], Any]] = {
        operator: lambda: operator.call("suspend_group", None, "t", "g"),
        publisher: lambda: publisher.publish("g", "1"),
    }
    first.begin()
    calls[first]()
    running = Running(calls[second])
    running.settle(watcher, second)
    assert running.done is not guarded
    first.commit()
    running.result()
    assert (publisher.claim_groups(None) == []) is guarded
    if guarded:
        assert operator.call("resume_group", "t", "g")
        assert len(publisher.claim_groups(None)) == 1


@guarded
def test_a_group_made_while_it_is_resumed_is_not_suspended(
    postgres_url: str, sessions: Sessions, guarded: bool
) -> None:
    if not guarded:
        sabotage(postgres_url, "mark_suspended", ("ORDER BY group_id FOR KEY SHARE", "ORDER BY group_id"))
    operator, publisher, watcher = sessions(), sessions(), sessions()
    operator.call("suspend_group", None, "t", "g")
    # The suspension is left without a group.
    assert publisher.claim_groups(None) == []
    assert publisher.connection.execute("SELECT count(*) FROM rota.groups").fetchone() == (0,)
    publisher.begin()
    seq = publisher.publish("g", "1")
    resume = Running(lambda: operator.call("resume_group", "t", "g"))
    resume.settle(watcher, operator)
    publisher.commit()
    assert resume.result() is True
    assert [row["seq"] for row in publisher.claim_groups(None)] == ([seq] if guarded else [])


# -- Keys (Q15) --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_of_two_enqueues_with_one_key_one_wins(sessions: Sessions, ending: str) -> None:
    first, second, watcher = sessions(), sessions(), sessions()
    stamp = (SECOND, 3, SECOND, None, 0, SECOND)
    values = (None, "q", False, "1", 0, None, None, None, None, "key", None, *stamp)
    first.begin()
    won = first.call("enqueue", *values)
    other = Running(lambda: second.call("enqueue", *values))
    other.settle(watcher, second)
    assert not other.done, "the second one has to wait for what becomes of the first"
    first.execute(ending)
    assert (other.result() == won) is (ending == "COMMIT")
    assert first.connection.execute("SELECT count(*) FROM rota.jobs").fetchone() == (1,)
