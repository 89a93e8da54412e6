from django.db import models


class Signup(models.Model):
    """Somebody who signed up, the task that welcomes them, and when it did."""

    address = models.EmailField(unique=True)
    task = models.CharField(max_length=64)
    welcomed_at = models.DateTimeField(null=True)
