"""The memory engine: the whole contract on indexed state in this process, one lock, no thread, nothing durable."""

from rota.memory.engine import MemoryEngine, open_memory

__all__ = ["MemoryEngine", "open_memory"]
