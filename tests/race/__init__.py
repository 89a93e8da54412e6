"""Races: real threads and processes, judged by what they logged (``judge``)."""
