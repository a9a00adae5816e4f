#!/usr/bin/env python3
"""A Tidegate worker over bare HTTP, with nothing but Python's standard library. See README.md."""
import json, os, random, signal, threading, time, urllib.error, urllib.request

URL = os.environ.get("TIDEGATE_URL", "http://127.0.0.1:8480").rstrip("/")
KEY = os.environ.get("TIDEGATE_KEY") or exit("TIDEGATE_KEY is missing: make one with `tidegate key create --role worker`")
ME = {"workerId": os.environ.get("WORKER_ID", "python-worker"), "incarnation": time.time_ns() // 1_000_000}
held, lock, stopping = [], threading.Lock(), threading.Event()


class Problem(Exception):
    """What the server has against a call; `LOST` where the lease is somebody else's."""


def call(path, body, timeout=10):
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(URL + path, json.dumps(body).encode(), headers), timeout=timeout) as answer:
            return json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        problem = json.loads(error.read() or "{}")
        if problem.get("retryable"):
            raise OSError(problem.get("code")) from None
        raise Problem(problem.get("code"), problem.get("detail")) from None


class Attempt:
    def __init__(self, lease, sent):
        self.run, self.fence, self.seq = lease["run"], lease["fence"], lease["nextSeq"]
        self.lease, self.ref = lease["leaseMs"] / 1000, {"runId": lease["run"]["runId"], "fence": lease["fence"]}
        self.sent, self.lost, self.cancel = sent, False, False

    def is_held(self):  # by our own monotonic clock, from when the last accepted renewal was SENT: nobody else's clock counts
        return not self.lost and time.monotonic() < self.sent + self.lease * 0.95

    def write(self, verb, **body):
        tries = 0
        while self.is_held():
            try:
                return call(f"/v1/worker/runs/{self.ref['runId']}/{verb}", {"fence": self.fence, **body})
            except OSError:  # the same write again is harmless: fence and event numbers make it the same
                time.sleep(random.uniform(0, min(2, 0.1 * 2**tries)))
                tries += 1
        raise Problem("LEASE_LOST", "the lease ran out")

    def say(self, kind, **body):
        self.write("events", events=[{"seq": self.seq, "kind": kind, "body": body}])
        self.seq += 1


def renew():
    """Renews all leases together, apart from the work, at a third of the shortest lease at the latest."""
    while True:
        with lock:
            mine = list(held)
        time.sleep(min([0.5] + [attempt.lease / 4 for attempt in mine]))
        mine, sent = [attempt for attempt in mine if not attempt.lost], time.monotonic()
        try:
            answer = call("/v1/worker/renew", {"leases": [attempt.ref for attempt in mine]}, 3) if mine else {}
        except (OSError, Problem):
            continue
        for attempt in mine:
            attempt.sent = sent if attempt.ref in answer["renewed"] else attempt.sent
            attempt.cancel |= attempt.ref in answer["cancel"]
            attempt.lost |= attempt.ref in answer["lost"]


def work(attempt):
    """The work itself: says each word of the input, slowly. Every step first asks whether it should still go on."""
    task = attempt.run["input"]
    words = task["text"].split()
    for word in words:
        if attempt.cancel:
            return attempt.write("fail", code="CANCELLED", retryable=False)
        if stopping.is_set():
            return attempt.write("release")
        attempt.say("message.delta", text=word + " ")
        time.sleep(task.get("delayMs", 100) / 1000)
    attempt.write("complete", result={"words": len(words), "by": ME["workerId"]})


def attempt_run(attempt):
    outcome = "reported"
    try:
        while attempt.is_held() and time.monotonic() > attempt.sent + attempt.lease / 2:
            time.sleep(0.05)  # less than half of the lease is left: start only after a renewal
        work(attempt)
    except Problem as problem:  # LEASE_LOST: another attempt's result stands, and ours is dropped
        outcome = problem.args[0]
    except Exception as defect:  # a defect of the work: the server decides whether to try again
        outcome = type(defect).__name__
        attempt.write("fail", code="WORKER_FAILED", detail=outcome, retryable=True)
    finally:
        with lock:
            held.remove(attempt)
        print(f"{attempt.ref['runId']} attempt {attempt.fence}: {outcome}", flush=True)


def main():
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGINT, lambda *_: stopping.set())
    threading.Thread(target=renew, daemon=True).start()
    slots, wait_ms = int(os.environ.get("WORKER_SLOTS", "2")), 500
    while not stopping.is_set() or held:
        if stopping.is_set() or len(held) >= slots:
            time.sleep(0.05)
            continue
        sent = time.monotonic()
        try:
            leases = call("/v1/worker/claim", {**ME, "protocolVersion": 1, "max": slots - len(held), "waitMs": wait_ms}, 15)["leases"]
        except OSError as error:
            print(f"cannot claim: {error}", flush=True)
            time.sleep(random.uniform(0.1, 2))
            continue
        for attempt in [Attempt(lease, sent) for lease in leases]:
            wait_ms = min(5000, int(attempt.lease * 250))  # a lease counts from when its claim was sent: wait a quarter of it at most
            with lock:
                held.append(attempt)
            threading.Thread(target=attempt_run, args=(attempt,)).start()


if __name__ == "__main__":
    main()
