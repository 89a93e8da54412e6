"""The worker: handlers for queues and transports, and the runtime that feeds them.

``plan`` decides (pure), ``registry`` and ``signature`` know the handlers, ``runtime`` puts the threads together:
``fetching`` claims, ``coroutines``, ``threads`` and ``children`` run handlers, ``beats`` keeps claims alive,
``settling`` records what became of them, ``housekeeping`` sweeps. ``stepping`` is all of it in one thread, for tests.
"""
