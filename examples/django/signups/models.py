from django.db import models


class Signup(models.Model):
    """Somebody who signed up, and when they were welcomed."""

    address = models.EmailField(unique=True)
    welcomed_at = models.DateTimeField(null=True)
