"""Errors of the gateway, each with the answer that a client gets for it."""

from __future__ import annotations

from tether.core.errors import TetherError


class GatewayError(TetherError):
    """Something about a gateway is not as it must be."""

    code = "gateway"
    http_status = 400


class UnknownStreamError(GatewayError):
    """No such stream."""

    code = "unknown-stream"
    http_status = 404


class BadRowsError(GatewayError):
    """Rows that do not parse, or that have another shape than the stream's."""

    code = "bad-rows"
    http_status = 400


class TooLargeError(GatewayError):
    """A message is larger than the gateway accepts."""

    code = "too-large"
    http_status = 413


class WrongSequenceError(GatewayError):
    """A producer's numbers do not go on where they must."""

    code = "wrong-sequence"
    http_status = 409


class SupersededError(GatewayError):
    """Another connection of the same producer has taken over."""

    code = "superseded"
    http_status = 409


class NotAllowedError(GatewayError):
    """No token, or a wrong one."""

    code = "not-allowed"
    http_status = 401


class BusyError(GatewayError):
    """No room now; the same request may succeed later."""

    code = "busy"
    http_status = 429


class StoreFailedError(GatewayError):
    """The gateway's disk does not take what must be durable; nothing was acknowledged."""

    code = "store-failed"
    http_status = 503


class UnreachableError(GatewayError):
    """Nobody answers at a gateway's address."""

    code = "unreachable"
    http_status = 503


class ElsewhereError(GatewayError):
    """Another process of the gateway has this producer's numbers."""

    code = "elsewhere"
