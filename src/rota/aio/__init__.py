"""The async facade: one line per method over ``rota.facade``. ``rota.sync`` is its twin; a test compares them."""
