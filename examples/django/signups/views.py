from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.views.decorators.http import require_GET, require_POST

from signups.models import Signup
from signups.tasks import count, welcome


@require_POST
@transaction.atomic
def sign_up(request: HttpRequest) -> JsonResponse:
    signup = Signup.objects.create(address=request.POST["address"])
    # In this transaction: row and task are committed together, or neither is.
    signup.task = welcome.enqueue(signup.pk).id
    signup.save()
    if signup.address.endswith(".invalid"):
        raise ValueError("nobody can be there")  # too late for on_commit, early enough for a rollback
    return JsonResponse({"id": signup.pk}, status=201)


@require_GET
def show(request: HttpRequest, pk: int) -> JsonResponse:
    signup = get_object_or_404(Signup, pk=pk)
    result = welcome.get_result(signup.task)
    return JsonResponse(
        {
            "address": signup.address,
            "status": result.status,
            "said": result.return_value if result.is_finished else None,
            "welcomed": signup.welcomed_at is not None,
        }
    )


@require_GET
def total(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"signups": Signup.objects.count()})


@require_POST
async def ask(request: HttpRequest) -> JsonResponse:
    result = await count.aenqueue(domain=request.POST["domain"])
    return JsonResponse({"report": result.id}, status=202)


@require_GET
async def report(request: HttpRequest, id: str) -> JsonResponse:
    result = await count.aget_result(id)
    return JsonResponse({"status": result.status, "report": result.return_value if result.is_finished else None})


urlpatterns = [
    path("signups", sign_up),
    path("signups/<int:pk>", show),
    path("signups/total", total),
    path("reports", ask),
    path("reports/<str:id>", report),
]
