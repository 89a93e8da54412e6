"""Keys (Q15): which item a key stands for, and until when it is taken at least."""

from __future__ import annotations

from rota import rules
from rota.memory.pins import busy
from rota.memory.schedule import Agenda

# How many keys whose time is over one new key cleans away, so that a caller who never sweeps stays bounded too.
_CLEANED_PER_KEY = 2


class _Row:
    __slots__ = ("item", "live", "over", "until")

    def __init__(self, item: int, until: int) -> None:
        self.item = item
        self.until = until
        self.live = True
        # Its time was over when last looked at: it goes with its item.
        self.over = False


class Keys:
    """The keys of one queue or transport."""

    __slots__ = ("_agenda", "_rows", "reserved")

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._agenda = Agenda(self._counts)
        # Taken by open transactions: by which, for which item.
        self.reserved: dict[str, tuple[object, int]] = {}

    def reserve(self, key: str, owner: object, item: int) -> None:
        """A transaction takes a free key, until its end."""
        self.reserved[key] = owner, item

    def unreserve(self, key: str) -> None:
        """Its end: bound by now, or free."""
        del self.reserved[key]

    def holder(self, key: str, now: int, owner: object = None) -> int | None:
        """The id of the item that has taken the key; None if it is free. ``EngineBusy``: another transaction has it."""
        if self.reserved and key in self.reserved:
            who, item = self.reserved[key]
            if who is not owner:
                raise busy()
            return item
        row = self._rows.get(key)
        if row is not None and rules.key_taken(row.live, row.until, now):
            return row.item
        return None

    def bind(self, key: str, item: int, until: int, now: int) -> None:
        """Take a free key for a live item."""
        self.sweep(now, _CLEANED_PER_KEY)
        self._rows[key] = _Row(item, until)
        self._agenda.put(until, key, len(self._rows))

    def ended(self, key: str, item: int) -> None:
        """The item is no longer live; its key stays taken until its time is over."""
        row = self._rows.get(key)
        if row is not None and row.item == item:
            row.live = False
            if row.over:
                del self._rows[key]

    def rebind(self, key: str, old: int, new: int, until: int, now: int) -> bool:
        """Give the key back to a redriven item (D3); False if another has taken it."""
        holder = self.holder(key, now)
        if holder is not None and holder != old:
            return False
        self.bind(key, new, until, now)
        return True

    def sweep(self, now: int, limit: int | None = None) -> None:
        """Delete the keys whose time is over and whose item is not live; at most about ``limit``."""
        for done, key in enumerate(self._agenda.take(now), 1):
            row = self._rows[key]
            if row.live:
                row.over = True
            else:
                del self._rows[key]
            if done == limit:
                return

    def __len__(self) -> int:
        return len(self._rows)

    def _counts(self, when: int, key: str) -> bool:
        row = self._rows.get(key)
        return row is not None and row.until == when and not row.over
