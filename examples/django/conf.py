"""Django's settings, without a project. Imported first by everything that uses Django."""

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="for this example only",
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF="signups.views",
    INSTALLED_APPS=["signups"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    EMAIL_BACKEND="django.core.mail.backends.console.EmailBackend",
    USE_TZ=True,
)
django.setup()
