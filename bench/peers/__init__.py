"""Rota's engines against libraries people use instead; each peer lives in a virtual environment of its own."""
