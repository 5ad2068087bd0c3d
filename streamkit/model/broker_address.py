"""Addresses of brokers as people write them: `host:port`, several with commas, `[...]` around an IPv6 address."""

import re

PORT_MAX = 65_535
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.%\w]+\]|[^\s:/@\[\]]+)(:(?P<port>.*))?")


def address_problem(brokers: str) -> str:
    """What is wrong with these addresses, with the first that is; empty if nothing is."""
    addresses = [each.strip() for each in brokers.split(",")]
    if not any(addresses):
        return "no broker is named"
    for address in addresses:
        found = _ADDRESS.fullmatch(address)
        if found is None:
            return f'"{address}" is not of the form host:port'
        port = found["port"]
        if port is not None and not (port.isascii() and port.isdigit() and 1 <= int(port) <= PORT_MAX):
            return f'"{port}" in "{address}" is no port'
    return ""
