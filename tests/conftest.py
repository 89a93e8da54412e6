"""What holds for every test."""

from __future__ import annotations

import signal

# A shell ignores SIGINT in what it starts in the background, and so would every process a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
