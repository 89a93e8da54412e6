"""The sync facade: one line per method over ``rota.facade``. ``rota.aio`` is its twin; a test compares them."""
