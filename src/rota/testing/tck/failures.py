"""E: one tree of errors, messages that say what was refused, and no passwords."""

from __future__ import annotations

from typing import Any

import pytest

import rota
from rota.testing.tck.base import Suite


class FailureClauses(Suite):
    """The failure language (E)."""

    def test_E_one_base(self) -> None:
        """Every error of Rota is a RotaError."""
        for name in (
            "PayloadError",
            "PayloadTooLarge",
            "StoreClosed",
            "LeaseLost",
            "TransactionError",
            "TransactionAborted",
            "EngineUnavailable",
            "OutcomeUnknown",
            "EngineBusy",
            "EngineFull",
            "SchemaMismatch",
        ):
            assert issubclass(getattr(rota, name), rota.RotaError), name

    def test_E_messages_say_what_was_refused_and_what_would_be_accepted(self, store: Any) -> None:
        """The name, the value, and the domain."""
        queue = store.queue("q")
        with pytest.raises(ValueError, match=r"priority.*-2147483648.*2147483647.*4294967296"):
            queue.enqueue(1, priority=2**32)
        with pytest.raises(ValueError, match=r"visibility.*more than 0.*-3"):
            queue.enqueue(1, visibility=-3)
        with pytest.raises(TypeError, match=r"max_attempts.*int.*'5'"):
            queue.enqueue(1, max_attempts="5")
        with pytest.raises(ValueError, match=r"'middle'"):
            store.transport("t").redrive("all", position="middle")

    def test_E_wrong_objects_are_refused(self, store: Any) -> None:
        """TypeError for something that is no job or lease; unknown options too."""
        queue, transport = store.queue("q"), store.transport("t")
        for wrong in (1, None, "job"):
            with pytest.raises(TypeError):
                queue.ack(wrong)
            with pytest.raises(TypeError):
                transport.ack(wrong)
        with pytest.raises(TypeError):
            queue.enqueue(1, colour="red")
        with pytest.raises(TypeError):
            store.configure_transport("t", colour="red")
        with pytest.raises(TypeError):
            transport.publish_many(["g"])

    def test_E_errors_of_wrong_type_leave_the_claim(self, store: Any) -> None:
        """An error that is neither text nor exception is refused before any effect."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue(1)
        transport.publish("g", 1)
        job, lease = queue.claim_one("w"), transport.claim("w")
        with pytest.raises(TypeError, match="error"):
            job.fail(5)
        with pytest.raises(TypeError, match="error"):
            lease.nack(error=b"x")
        assert job.ack()
        assert lease.ack()

    def test_E_lost_claims_never_raise(self, store: Any) -> None:
        """Not valid is False (or None), not an exception."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue(1)
        transport.publish("g", 1)
        job, lease = queue.claim_one("w"), transport.claim("w")
        assert job.ack()
        assert lease.ack()
        assert [job.ack(), job.retry(), job.fail(), job.release(), job.heartbeat()] == [False] * 5
        assert [lease.ack(), lease.nack(), lease.retry(), lease.fail(), lease.release()] == [False] * 5
        assert lease.extend(5) is None

    def test_E_reprs_are_short_and_safe(self, store: Any) -> None:
        """Every handle says what it is, without payloads."""
        queue, transport = store.queue("q"), store.transport("t")
        queue.enqueue("secret payload")
        transport.publish("g", "secret payload")
        shown = [repr(each) for each in (store, queue, transport, queue.claim_one("w"), transport.claim("w"))]
        assert all("secret" not in text and len(text) < 300 for text in shown)
        assert "q" in shown[1]

    @pytest.mark.parametrize(
        "url", ["", "nothing", "ftp://x", "postgres-like://u:hunter2@h/d", "memory", "sqlite", "://"]
    )
    def test_E_urls_that_mean_nothing_are_refused(self, url: str) -> None:
        """ValueError that lists what would be accepted and never shows a password."""
        with pytest.raises((ValueError, rota.EngineUnavailable)) as refusal:
            rota.open(url)
        assert "hunter2" not in str(refusal.value)
