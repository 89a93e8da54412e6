"""records: what crosses the border between facade and engine is plain tuples whose fields line up."""

from __future__ import annotations

import dataclasses

from rota import public, records


def test_rows_are_named_tuples() -> None:
    rows = [each for each in vars(records).values() if isinstance(each, type) and each.__module__ == records.__name__]
    assert len(rows) >= 10
    for row in rows:
        assert issubclass(row, tuple), row


def test_the_facade_shows_every_field_of_a_row() -> None:
    """A field added to a row must not be forgotten on the way out."""
    shown = {field.name for field in dataclasses.fields(public.JobRecord)}
    assert set(records.JobRow._fields) - {"stamp"} <= shown
    assert set(records.Stamp._fields) - {"key_ttl"} <= shown
    assert set(records.MessageRow._fields) - {"previous_error"} == {
        field.name for field in dataclasses.fields(public.Message)
    }
    assert set(records.GroupRow._fields) == {field.name for field in dataclasses.fields(public.Group)}


def test_a_claim_carries_what_a_job_has() -> None:
    assert {"id", "token", "worker_id", "claim_expires_at", "visibility"} <= set(records.JobClaim._fields)
    assert {"seq", "token", "worker_id", "deadline", "group_id"} <= set(records.LeaseClaim._fields)
