def adopt(engine, connection, *, asynchronous): raise TypeError("x")
