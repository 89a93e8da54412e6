"""Rota inside of other frameworks. Nothing else of Rota imports this."""
