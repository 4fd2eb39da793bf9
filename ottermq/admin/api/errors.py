"""What the rules refuse, as RabbitMQ's API tells it."""

from http import HTTPStatus

from ottermq.admin.messages import Problem, unauthorized
from ottermq.definitions.fields import Wrong
from ottermq.errors import AccessRefused, NotFound, OtterError, UnderLegalHold, codes_of
from ottermq.wal import LogError

REFUSALS = (OtterError, LogError, Wrong)


def problem_of(error: Exception) -> Problem:
    """Rights are a matter of 401 there, and broken rules of 400, whatever code AMQP gives them."""
    text = str(error)
    match error:
        case NotFound():
            return Problem(HTTPStatus.NOT_FOUND, text, error="not_found")
        case AccessRefused():
            return unauthorized(text)
        case UnderLegalHold():
            return Problem(HTTPStatus.CONFLICT, text)
        case LogError():
            return Problem(HTTPStatus(codes_of(error).http), text)
        case _:
            return Problem(HTTPStatus.BAD_REQUEST, text)
