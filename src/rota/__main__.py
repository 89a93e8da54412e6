"""``python -m rota``."""

import sys

from rota.cli import main

if __name__ == "__main__":
    sys.exit(main())
