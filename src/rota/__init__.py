"""Rota: leased work queues with one contract on every engine."""

__version__ = "0.1.0"
