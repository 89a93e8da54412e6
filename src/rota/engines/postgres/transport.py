"""``rota.contract.TransportEngine`` on PostgreSQL: each hot verb is one call of a function, one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rota import rules
from rota.contract import COUNT_CAP, Position
from rota.engines.postgres.arrays import numbers, texts
from rota.engines.postgres.frontier import GroupFrontier
from rota.engines.postgres.queue import FORGOTTEN_AT_ONCE, OUTRUN
from rota.engines.postgres.queue import SQL as QUEUE_SQL
from rota.engines.postgres.verbs import BoundVerb, Runs, reading_verb, verb
from rota.records import (
    DeadMessageRow,
    ExplanationRow,
    GroupRow,
    GroupState,
    LeaseClaim,
    MessageRow,
    NewMessage,
    TransportOptions,
    TransportStatsRow,
)
from rota.sql.blocks import Blocks
from rota.sql.drive import Op
from rota.sql.keys import SWEPT_AT_ONCE
from rota.sql.rows import dead_message, headers_of, headers_text, message, named_options, options_of, options_text
from rota.sql.transport_inspect import COUNTED, PAGE, group_row

if TYPE_CHECKING:
    from rota.engines.postgres.engine import PostgresEngine

SQL = Blocks("rota.engines.postgres", "statements/transport.sql")

_LOWEST = -(2**31)
_KEYS_START = (-(2**63), "")


class PostgresTransport:
    """One transport of one schema, with the options its handle names (T11)."""

    def __init__(self, engine: PostgresEngine, name: str, declared: dict[str, Any]) -> None:
        self.name = name
        self.place = engine.place_of("transport", name)
        self._engine = engine
        self._now = engine.injected_now
        self._declared = declared
        self._settled = False
        # Shared by the handles of one transport, one for each floor.
        self._frontiers: dict[int, GroupFrontier] = engine.frontiers.setdefault(("transport", name), {})
        self._swept_keys = _KEYS_START

    @property
    def runner(self) -> Runs:
        return self._engine.runner

    def before(self) -> BoundVerb[[], None] | None:
        """As for queues: the transport is there, and has its options."""
        return None if self._settled else self.declare

    @verb
    def declare(self) -> Op[None]:
        """Merge the options now."""
        yield from self._declare(make=True)

    def _bounded(self) -> bool:
        """As for queues."""
        return self._engine.bounded and not self._engine.runner.explicit

    # -- Options (T11) -----------------------------------------------------------------------------------------------

    def _declare(self, make: bool) -> Op[None]:
        """Merge the handle's options with the stored ones, once, before this object's first verb that counts."""
        if self._settled or (not make and not self._declared):
            return
        merged = yield from self._change(lambda stored: rules.merge_options(self.name, stored, self._declared), make)
        self._settled = merged is not None

    def _change(self, change: Any, make: bool) -> Op[TransportOptions | None]:
        """Compare and swap. None: there is no such transport, and it was not to be made."""
        while True:
            rows = yield SQL.options, (self.name,)
            if not rows and not make:
                return None
            text = rows[0][0] if rows else None
            changed = options_text(change({} if text is None else named_options(text)))
            ruling = options_of(changed)
            # fmt: off
            values = (
                changed, ruling.max_deliveries, ruling.poison == "hold", ruling.new_groups == "last",
                ruling.dead_letter_retention, ruling.key_ttl,
            )
            # fmt: on
            if changed == text:
                return ruling
            if text is None:
                done = yield SQL.make, (self.name, *values)
            else:
                done = yield SQL.change, (*values, self.name, text)
            if done:
                return ruling

    @reading_verb
    def options(self) -> Op[TransportOptions]:
        yield from self._declare(make=False)
        rows = yield SQL.options, (self.name,)
        if rows:
            return options_of(rows[0][0])
        return rules.resolve_options(self._declared)

    @verb
    def configure(self, changes: dict[str, Any]) -> Op[TransportOptions]:
        yield from self._declare(make=True)
        ruling = yield from self._change(lambda stored: stored | changes, True)
        assert ruling is not None
        return ruling

    # -- Publish (T2, T5) --------------------------------------------------------------------------------------------

    @verb
    def publish(
        self, group_id: str, event: Any, priority: int, key: str | None, headers: dict[str, str] | None
    ) -> Op[int]:
        if not self._settled:
            yield from self._declare(make=True)
        values = (self._now(), self.name, group_id, event, priority, key, headers_text(headers))
        ((seq,),) = yield SQL.publish, values
        for frontier in self._frontiers.values():
            frontier.published(seq)
        number: int = seq
        return number

    @verb
    def publish_many(self, messages: Sequence[NewMessage]) -> Op[list[int]]:
        if not self._settled:
            yield from self._declare(make=True)
        if not messages:
            return []
        groups, events, priorities, keys, headers = map(list, zip(*messages, strict=True))
        # fmt: off
        ((seqs,),) = yield SQL.publish_many, (
            self._now(), self.name, texts(groups), texts(events), numbers(priorities),
            texts(keys) if any(key is not None for key in keys) else None,
            texts([headers_text(each) for each in headers]) if any(headers) else None,
        )
        # fmt: on
        new: list[int] = seqs
        for frontier in self._frontiers.values():
            frontier.published(min(new))
        return new

    # -- Claim (T1-T4, T7) -------------------------------------------------------------------------------------------

    @verb
    def claim(self, worker_id: str, n: int, visibility: int, min_priority: int | None) -> Op[list[LeaseClaim]]:
        if n <= 0:
            return []
        if not self._settled:
            yield from self._declare(make=True)
        floor = _LOWEST if min_priority is None else min_priority
        frontier = self._frontiers.get(floor) or self._frontiers.setdefault(floor, GroupFrontier())
        leases: list[LeaseClaim] = []
        outrun = 0
        while True:
            epoch = frontier.epoch
            places = frontier.places() if self._bounded() else frontier.EVERYTHING
            wanted = min(n, 2**31) - len(leases)
            rows = yield SQL.claim, (self._now(), self.name, worker_id, wanted, visibility, floor, *places)
            more = rows.pop() if rows and rows[-1][0] is None else None
            if rows:
                if len(rows) > 1:
                    rows.sort(key=_token)
                if rows[0][4]:
                    frontier.reset()
                elif self._bounded():
                    began = rows[0][6] - visibility
                    frontier.claimed(epoch, [row[10] for row in rows], {row[7] for row in rows}, began)
                leases += [_lease(row, worker_id) for row in rows]
            if more is None:
                if not leases and frontier.came_back_empty(places):
                    continue
                return leases
            # What was cleaned is committed now; look for the rest.
            if more[5] is None:
                outrun += 1
                if outrun > OUTRUN:
                    return leases

    # -- Settling (T6) -----------------------------------------------------------------------------------------------

    @verb
    def ack(self, claim: LeaseClaim) -> Op[bool]:
        if not self._settled:
            yield from self._declare(make=True)
        acked = yield SQL.ack, (self.name, claim.group_id, claim.token, claim.seq)
        self._freed(claim)
        return bool(acked[0][0])

    @verb
    def ack_batch(self, claims: Sequence[LeaseClaim]) -> Op[int]:
        yield from self._declare(make=True)
        if not claims:
            return 0
        ((count,),) = yield SQL.ack_batch, (self.name, numbers([claim.token for claim in claims]))
        self._freed(*claims)
        number: int = count
        return number

    @verb
    def nack(self, claim: LeaseClaim, delay: int, error: str | None) -> Op[bool]:
        return (yield from self._give_up(claim, delay, error, 0))

    @verb
    def release(self, claim: LeaseClaim, delay: int) -> Op[bool]:
        return (yield from self._give_up(claim, delay, None, 1))

    @verb
    def release_batch(self, claims: Sequence[LeaseClaim]) -> Op[int]:
        yield from self._declare(make=True)
        if not claims:
            return 0
        ordered = sorted(claims, key=lambda claim: claim.token)
        groups = texts([claim.group_id for claim in ordered])
        tokens, seqs = numbers([claim.token for claim in ordered]), numbers([claim.seq for claim in ordered])
        ((count,),) = yield SQL.release_batch, (self._now(), self.name, groups, tokens, seqs)
        self._freed(*claims)
        number: int = count
        return number

    def _give_up(self, claim: LeaseClaim, delay: int, error: str | None, back: int) -> Op[bool]:
        yield from self._declare(make=True)
        fence = (claim.group_id, claim.token, claim.seq)
        ((done,),) = yield SQL.give_up, (self._now(), self.name, *fence, delay, error, back)
        self._freed(claim)
        return bool(done)

    def _freed(self, *claims: LeaseClaim) -> None:
        """A claim's token is the turn its group has now."""
        turn = min(claim.token for claim in claims)
        for frontier in self._frontiers.values():
            frontier.freed(turn)

    @verb
    def extend(self, claims: Sequence[LeaseClaim], visibility: int) -> Op[list[int | None]]:
        yield from self._declare(make=True)
        if not claims:
            return []
        groups, tokens = [claim.group_id for claim in claims], [claim.token for claim in claims]
        ((deadlines,),) = yield SQL.extend, (self._now(), self.name, texts(groups), numbers(tokens), visibility)
        renewed: list[int | None] = deadlines
        return renewed

    @verb
    def fail(self, claim: LeaseClaim, error: str | None) -> Op[bool]:
        yield from self._declare(make=True)
        ((failed,),) = yield SQL.fail, (self._now(), self.name, claim.group_id, claim.token, claim.seq, error)
        self._freed(claim)
        return bool(failed)

    # -- Control (T9) ------------------------------------------------------------------------------------------------

    @verb
    def suspend(self, group_id: str | None) -> Op[bool]:
        yield from self._declare(make=True)
        if group_id is None:
            changed: int = yield SQL.suspend_all, (self._now(), self.name)
            return changed > 0
        ((done,),) = yield SQL.suspend_group, (self._now(), self.name, group_id)
        return bool(done)

    @verb
    def resume(self, group_id: str | None) -> Op[bool]:
        yield from self._declare(make=True)
        if group_id is None:
            changed: int = yield SQL.resume_all, (self.name,)
            return changed > 0
        ((done,),) = yield SQL.resume_group, (self.name, group_id)
        self._draw_back()
        return bool(done)

    @verb
    def purge(self, group_id: str) -> Op[int]:
        yield from self._declare(make=True)
        ((count,),) = yield SQL.purge, (self.name, group_id)
        number: int = count
        return number

    @verb
    def sweep(self) -> Op[int]:
        """In rounds, each a transaction of its own: nobody waits long for the locks."""
        yield from self._declare(make=True)
        total, count = 0, FORGOTTEN_AT_ONCE
        while count == FORGOTTEN_AT_ONCE:
            ((count,),) = yield SQL.forget, (self._now(), self.name, FORGOTTEN_AT_ONCE)
            total += count
        where = (self._now(), "transport", self.name, *self._swept_keys, SWEPT_AT_ONCE)
        ((until, key),) = yield QUEUE_SQL.sweep_keys, where
        self._swept_keys = _KEYS_START if until is None else (until, key)
        return total

    def _draw_back(self) -> None:
        for frontier in self._frontiers.values():
            frontier.reset()

    # -- Looking: one statement, one snapshot ------------------------------------------------------------------------

    @reading_verb
    def groups(self, state: GroupState | None, limit: int, after: str | None) -> Op[list[GroupRow]]:
        """Groups by id; those in a state are picked from pages of all."""
        yield from self._declare(make=False)
        found: list[GroupRow] = []
        start = after or ""
        while len(found) < limit:
            size = min(limit, PAGE) if state is None else PAGE
            rows = yield SQL.groups, self._named(after=start, limit=size)
            if not rows:
                break
            start = rows[-1][0]
            listed = (group_row(row[-1], row[:-1]) for row in rows)
            found += [group for group in listed if state is None or group.state == state]
        return found[:limit]

    @reading_verb
    def stats(self) -> Op[TransportStatsRow]:
        yield from self._declare(make=False)
        ((*counts, oldest, suspended_at, due, now),) = yield SQL.stats, self._named(cap=COUNT_CAP + 1)
        named = dict(zip(COUNTED, counts, strict=True))
        return TransportStatsRow(
            **{name: min(count, COUNT_CAP) for name, count in named.items()},
            capped=tuple(name for name, count in named.items() if count > COUNT_CAP),
            oldest_ready_at=oldest if suspended_at is None else None,
            next_due_at=due if suspended_at is None else None,
            suspended=suspended_at is not None,
            now=now,
        )

    @reading_verb
    def peek(self, group_id: str, n: int) -> Op[list[MessageRow]]:
        yield from self._declare(make=False)
        return [message(row) for row in (yield SQL.peek, (self.name, group_id, n))]

    @reading_verb
    def explain(self, group_id: str) -> Op[ExplanationRow]:
        yield from self._declare(make=False)
        ((now, transport_suspended_at, suspended_at, messages, since, until, leased, worker_id),) = yield (
            SQL.explain,
            self._named(group=group_id),
        )
        return rules.explain_group(
            now=now,
            transport_suspended_at=transport_suspended_at,
            suspended_at=suspended_at,
            messages=messages,
            held_since=since,
            held_until=until,
            leased=leased,
            worker_id=worker_id,
        )

    @reading_verb
    def next_due(self) -> Op[int | None]:
        yield from self._declare(make=False)
        ((due,),) = yield SQL.next_due, (self._now(), self.name)
        instant: int | None = due
        return instant

    def _named(self, **values: Any) -> Any:
        """Values by name, the clock and the transport among them."""
        return {"now": self._now(), "transport": self.name, **values}

    # -- Dead letters (D2, D3) ---------------------------------------------------------------------------------------

    @reading_verb
    def dead_letters(self, limit: int, after: int | None, group_id: str | None) -> Op[list[DeadMessageRow]]:
        yield from self._declare(make=False)
        start = -1 if after is None else after
        if group_id is None:
            rows = yield SQL.letters, (self.name, start, limit)
        else:
            rows = yield SQL.letters_of_group, (self.name, group_id, start, limit)
        return [dead_message(row) for row in rows]

    @verb
    def purge_dead(self, ids: Sequence[int] | None, older_than: int | None) -> Op[int]:
        yield from self._declare(make=True)
        if older_than is not None:
            count: int = yield SQL.purge_letters_by_age, (self.name, self._now(), older_than)
        elif ids is None:
            count = yield SQL.purge_letters, (self.name,)
        else:
            count = yield SQL.purge_letters_by_id, (self.name, list(ids))
        return count

    @verb
    def redrive(self, ids: Sequence[int] | None, position: Position) -> Op[list[int]]:
        yield from self._declare(make=True)
        asked = None if ids is None else list(ids)
        ((seqs,),) = yield SQL.redrive, (self._now(), self.name, asked, position == "original")
        self._draw_back()
        live: list[int] = seqs
        return live


def _token(row: tuple[Any, ...]) -> int:
    token: int = row[3]
    return token


def _lease(row: tuple[Any, ...], worker_id: str) -> LeaseClaim:
    headers = None if row[8] is None else headers_of(row[8])
    return LeaseClaim._make((*row[:4], worker_id, *row[5:8], headers, row[9], options_of(row[11]).backoff_base))
