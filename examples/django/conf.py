"""Django's settings, without a project. Imported first by everything that uses Django."""

import os

import django
from django.conf import settings

if "PGDATABASE" in os.environ:
    names = {"NAME": "PGDATABASE", "USER": "PGUSER", "PASSWORD": "PGPASSWORD", "HOST": "PGHOST", "PORT": "PGPORT"}
    database = {"ENGINE": "django.db.backends.postgresql"} | {
        setting: os.environ.get(name, "") for setting, name in names.items()
    }
else:
    # Transactions begin as writers, so that one that has read first can still write when others wrote meanwhile.
    database = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": "site.db",
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }

settings.configure(
    SECRET_KEY="for this example only",
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF="signups.views",
    INSTALLED_APPS=["rota.contrib.django", "signups"],
    DATABASES={"default": database},
    # The tasks are in the project's database, too.
    TASKS={
        "default": {
            "BACKEND": "rota.contrib.django.RotaBackend",
            "QUEUES": ["default", "reports"],
            "OPTIONS": {"max_attempts": 3, "backoff_base": 1},
        }
    },
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    EMAIL_BACKEND="django.core.mail.backends.console.EmailBackend",
    USE_TZ=True,
)
django.setup()
