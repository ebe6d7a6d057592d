"""Check that a server can listen on an address before a model is loaded."""

import errno
import socket

from macro_routing.errors import MacroError


def check_address(host: str, port: int) -> None:
    """Reject a port that is in use and a host that is not this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
            )  # a port of a server that has just ended is free
            listener.bind(address)
    except (OSError, UnicodeError) as error:
        raise MacroError(_explain_error(host, port, error)) from None


def _explain_error(host: str, port: int, error: Exception) -> str:
    kind = getattr(error, "errno", None)
    if kind == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; stop the program that uses it, or choose another with --port"
    if kind == errno.EACCES:
        return f"this user may not listen on port {port}; choose one above 1023 with --port"
    return (
        f"{host} is not an address of this machine ({error}); use --host 127.0.0.1, or an address that others can reach"
    )
