"""Whether a server can listen where it is asked to, found out before a model is loaded for it."""

from __future__ import annotations

import errno
import socket

from macro_routing.errors import MacroError


def check_address(host: str, port: int) -> None:
    """Refuse a port that is taken and a host that is not this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that has just ended is no hindrance
            tried.bind(address)
    except (OSError, UnicodeError) as error:
        raise MacroError(_explain_error(host, port, error)) from None


def _explain_error(host: str, port: int, error: Exception) -> str:
    kind = getattr(error, "errno", None)
    if kind == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; end what uses it, or name another with --port"
    if kind == errno.EACCES:
        return f"this user may not listen on port {port}; name one above 1023 with --port"
    return f"{host} is no address of this machine ({error}); --host is 127.0.0.1 unless others are to reach the server"
