from functools import partial

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.views.decorators.http import require_GET, require_POST

from signups.models import Signup
from signups.queues import mails


@require_POST
@transaction.atomic
def sign_up(request: HttpRequest) -> JsonResponse:
    signup = Signup.objects.create(address=request.POST["address"])
    # Not before the commit: the worker would look for a row that is not there yet, or never will be.
    transaction.on_commit(partial(mails().enqueue, signup.pk, name="welcome", key=f"welcome-{signup.pk}"))
    return JsonResponse({"id": signup.pk}, status=201)


@require_GET
def show(request: HttpRequest, pk: int) -> JsonResponse:
    signup = get_object_or_404(Signup, pk=pk)
    return JsonResponse({"address": signup.address, "welcomed": signup.welcomed_at is not None})


urlpatterns = [path("signups", sign_up), path("signups/<int:pk>", show)]
