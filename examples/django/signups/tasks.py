import asyncio
from typing import Any

from django.core.mail import send_mail
from django.utils import timezone

from signups.models import Signup

try:
    from django.tasks import task
except ImportError:  # before Django 6
    from django_tasks import task


@task(priority=10)
def welcome(pk: int) -> str:
    """Send a mail, once: the task may be run again when its worker dies."""
    signup = Signup.objects.filter(pk=pk, welcomed_at=None).first()
    if signup is None:
        return "nothing to do"
    send_mail("Welcome", "Good to have you here.", "shop@example.org", [signup.address])
    Signup.objects.filter(pk=pk).update(welcomed_at=timezone.now())
    return f"welcomed {signup.address}"


@task(queue_name="reports", takes_context=True)
async def count(context: Any, domain: str) -> dict[str, Any]:
    """An async task, on the worker's event loop."""
    await asyncio.sleep(0.1)
    number = await Signup.objects.filter(address__endswith=f"@{domain}").acount()
    return {"domain": domain, "signups": number, "attempt": context.attempt}
