"""The failure language of Rota (contract E): one small tree, and nothing from a database driver outside it.

Messages say what was refused, the value, and what would be accepted. They never contain a password.
"""


class RotaError(Exception):
    """Base of every error Rota raises, except ``TypeError`` and ``ValueError`` for wrong arguments."""


class PayloadError(RotaError):
    """A payload that cannot be carried exactly (P1), or stored text that cannot be decoded (P3)."""


class PayloadTooLarge(PayloadError):
    """An encoded payload longer than the store's ``max_payload_bytes`` (P2)."""


class StoreClosed(RotaError):
    """The store was closed before or while the call ran (X8)."""


class LeaseLost(RotaError):
    """A settlement inside a transaction was not valid (X3)."""


class TransactionError(RotaError):
    """A transaction was misused."""


class TransactionAborted(RotaError):
    """The database aborted the transaction: roll back and run it again."""


class EngineUnavailable(RotaError):
    """The engine could not be reached or opened; nothing happened."""

    lasting: bool = False
    """Whether trying again does not help: no such folder, not a database, no right. False where that is not known."""

    def __init__(self, *args: object, lasting: bool = False) -> None:
        super().__init__(*args)
        if lasting:
            self.lasting = True


class OutcomeUnknown(RotaError):
    """The engine failed while committing: the write may or may not have happened (Q15 says how to repeat it)."""


class EngineBusy(RotaError):
    """A lock could not be had in time; nothing happened."""

    pinned: bool = False
    """Whether an open transaction has the very item this is about (X2), so that others can be had meanwhile."""

    def __init__(self, *args: object, pinned: bool = False) -> None:
        super().__init__(*args)
        if pinned:
            self.pinned = True


class EngineFull(RotaError):
    """The disk, or a configured cap, is full; nothing was stored."""


class SchemaMismatch(RotaError):
    """The stored schema is not the one this version works with; the message says which and what to run."""
