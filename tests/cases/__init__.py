"""Faults that users of other queues met, each as a small scenario for this API."""
