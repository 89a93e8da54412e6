"""What the sync and the async facade share: checking input, making records, waiting. No I/O happens here."""
