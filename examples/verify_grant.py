#!/usr/bin/env python3
"""Checks a call lease of Tidegate offline, by the published keys, and may narrow it further. See README.md."""
import json, sys, urllib.request
from datetime import datetime, timedelta, timezone

from biscuit_auth import Algorithm, AuthorizerBuilder, Biscuit, BlockBuilder, PublicKey

SIZE_MAX = 8192  # a longer text is none of ours
EXPOSURE = timedelta(seconds=60)  # a call lease is over by then; nothing that lives longer is taken

# What we know, and what is asked. The checks inside of the lease are run against it.
QUESTION = """
    time({now}); resource({resource}); amount({amount}); calls({call});
    known_fence({generation}, {number}); known_lease_fence({lease_generation}, {lease_number});
    allow if tidegate_grant(1), grant($i, $r, $limit), resource($r), amount($n), $n <= $limit;
"""


class Refused(Exception):
    """Why a lease is not good for what is asked."""


def published(place):
    """The keys, from a server or from a file with its answer. A server's may be kept for a minute."""
    if place.startswith("http"):
        with urllib.request.urlopen(place.rstrip("/") + "/.well-known/tidegate-keys", timeout=10) as answer:
            return json.load(answer)["keys"]
    with open(place, encoding="utf-8") as file:
        return json.load(file)["keys"]


def read(keys, token, now):
    """The lease, with its signatures checked by a key that is published and not retired."""

    def key(number):
        for known in keys:
            until = known.get("retireAt")
            if known["keyId"] == number and (until is None or now < datetime.fromisoformat(until.replace("Z", "+00:00"))):
                return PublicKey.from_bytes(bytes.fromhex(known["publicKey"]), Algorithm.Ed25519)
        raise Refused(f"key {number} is not published: read the keys again, at most once a second")

    if len(token) > SIZE_MAX:
        raise Refused("it is too long")
    lease = Biscuit.from_base64(token, key)
    if any(lease.block_external_key(index) for index in range(1, lease.block_count())):
        raise Refused("it has a block of a third party")
    return lease


def allows(lease, resource, amount, call, at, known_fence=(0, 0), known_lease_fence=(0, 0)):
    """Raises unless the lease allows it at a time. `amount` and `call` count what was used under it before, too."""
    question = AuthorizerBuilder(QUESTION, {
        "now": at, "resource": resource, "amount": amount, "call": call,
        "generation": known_fence[0], "number": known_fence[1],
        "lease_generation": known_lease_fence[0], "lease_number": known_lease_fence[1],
    })  # fmt: skip
    limits = question.limits()  # facts and rounds bound the work; the time is for a machine in need
    limits.max_facts, limits.max_iterations, limits.max_time = 200, 10, timedelta(seconds=5)
    question.set_limits(limits)
    question.build(lease).authorize()


def check(keys, token, resource, amount, call):
    """Raises unless the text is a call lease that allows it now."""
    now = datetime.now(timezone.utc)
    lease = read(keys, token, now)
    allows(lease, resource, amount, call, now)
    try:
        allows(lease, resource, amount, call, now + EXPOSURE + timedelta(seconds=1))
    except Exception:  # that it ends in time is what is wanted
        return lease
    raise Refused("it lives for more than 60 s: it is no call lease")


def main():
    if len(sys.argv) not in (5, 6):
        sys.exit("usage: verify_grant.py URL|FILE RESOURCE AMOUNT CALL [narrowed-to-CALLS] < LEASE")
    place, resource, amount, call = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    try:
        lease = check(published(place), sys.stdin.read(SIZE_MAX + 2).strip(), resource, amount, call)
    except Exception as why:  # the library has several; each means no
        sys.exit(f"refused: {why}")
    if len(sys.argv) == 6:
        narrowed = lease.append(BlockBuilder("check if calls($n), $n <= {calls}", {"calls": int(sys.argv[5])}))
        print(narrowed.to_base64())
    else:
        print("good")


if __name__ == "__main__":
    main()
