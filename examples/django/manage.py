"""``python manage.py migrate --run-syncdb``, ``python manage.py runserver``, ``python manage.py rota_worker``."""

import sys

import conf  # noqa: F401
from django.core.management import execute_from_command_line

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
