"""Who may see the sandbox's key and set its faults: programs with the key, people at this machine.

Two attacks must fail at once: another machine that says ``Host: localhost`` where the sandbox
listens on all addresses, and a site whose name was made to lead here (DNS rebinding), which the
browser of somebody at this machine opens.
"""

from __future__ import annotations

from base64 import b64encode
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk.sandbox import Faults, Sandbox
from integration_sdk.sandbox._call import Answer, Call
from integration_sdk.sandbox._control import Control
from integration_sdk.sandbox._http import is_same_machine
from integration_sdk.sandbox._routes import Router
from integration_sdk.sandbox._service import Service
from integration_sdk.sandbox._settings import Settings
from tests.sandbox_support import serving

HOSTS = {"localhost:8080": True, "127.0.0.1:8080": True, "[::1]:8080": True}
HOSTS |= {"evil.example": False, "192.0.2.9": False, "": False}
LATENCY = b'[{"fault": "latency", "seconds": 0}]'
CALLS = {
    "the page": ("GET", "/", b""),
    "the key": ("GET", "/_page/about", b""),
    "what happens": ("GET", "/_page/state", b""),
    "the faults": ("GET", "/_page/faults", b""),
    "a new fault": ("POST", "/_page/faults", LATENCY),
    "no more faults": ("DELETE", "/_page/faults", b""),
}


SETTINGS = Settings(
    companies=1,
    invoices=1,
    seed=0,
    dialect="document",
    spelling=None,
    api_key="secret",
    free_plan=False,
    account_age_days=0,
    legacy_removed=True,
    push_seconds=(0, 0),
    daily_quota=None,
    starts=None,
    remember=0,
    host="0.0.0.0",
    port=0,
)


async def answer(what: str, headers: dict[str, str], *, is_from_here: bool) -> tuple[Answer, int]:
    """What is answered to a call, and how many faults there are then."""
    router = Router("document")
    service = Service(SETTINGS, router.find)
    faults = Faults(service, router.samples)
    method, path, body = CALLS[what]
    headers = {"Content-Type": "application/json"} | headers
    call = Call(service.clock, method, path, [], headers, body, path.split("/")[1:])
    call.is_from_here = is_from_here
    return await Control(service, faults).respond(call), len(list(faults))


@pytest.mark.parametrize("what", CALLS)
async def test_only_who_is_here_and_asks_for_here_is_answered(what: str) -> None:
    """The peer's address decides, and the Host header may still refuse; the key opens all."""
    credential = {"Authorization": f"Basic {b64encode(b'secret').decode()}"}
    for host, here in product(HOSTS, (True, False)):
        told, faults = await answer(what, {"Host": host}, is_from_here=here)
        keyed, _ = await answer(what, {"Host": host, **credential}, is_from_here=here)

        allowed = here and HOSTS[host]
        assert told.status == (200 if allowed else 403), (host, here)
        assert keyed.status == 200
        assert faults == (what == "a new fault" and allowed)
        assert allowed or b"secret" not in told.body


@pytest.mark.parametrize(
    ("peer", "here", "same"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.8", "192.0.2.7", False),
        ("172.17.0.1", "172.17.0.2", False),
        ("fe80::1%eth0", "fe80::1%eth0", True),
        ("fe80::2%eth0", "fe80::1%eth0", False),
        ("::ffff:192.0.2.8", "::ffff:192.0.2.7", False),
        (None, None, False),
        ("", "", False),
        ("localhost", "127.0.0.1", False),
    ],
)
def test_a_peer_is_of_this_machine_by_its_address(
    peer: str | None, here: str | None, same: bool
) -> None:
    """A loopback address cannot come from elsewhere, nor can the address that was called."""
    assert is_same_machine(peer, here) is same


@given(st.ip_addresses(v=4), st.ip_addresses(v=4))
def test_another_address_is_another_machine(peer: object, here: object) -> None:
    """Unless it is of the loopback network."""
    ours = str(peer).startswith("127.") or peer == here

    assert is_same_machine(str(peer), str(here)) == ours
    assert is_same_machine(f"::ffff:{peer}", f"::ffff:{here}") == ours


async def test_the_page_opens_at_this_machine() -> None:
    """Whether the sandbox listens on the loopback address or on all."""
    for host in ("127.0.0.1", "0.0.0.0"):
        async with serving(key="wrong", host=host, invoices=1) as http:
            port = http.sandbox.base_url.rpartition(":")[2]
            local = await http.call("GET", "/_page/about", headers={"Host": f"localhost:{port}"})

        assert (local.status, local.body["key"]) == (200, Sandbox().api_key)
