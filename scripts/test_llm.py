"""A turn without tools against a small real model, through a whole Tidegate: streamed to its end, then cancelled half-way.

Usage: test_llm.py TIDEGATE (the binary); `make test-llm` calls it. Standard library only.

What it proves that a scripted provider cannot: an endpoint nobody here wrote is understood, its figures are the ones that
are booked, and a cancelled turn frees the real model at once.
"""

import contextlib
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request

TOKENS = 120
ROOT = pathlib.Path(__file__).resolve().parent.parent
START_S = 120.0
TURN_S = 180.0
FREE_S = 5.0


def say(text):
    print(f"test-llm: {text}", flush=True)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def until(what, seconds, probe):
    deadline = time.monotonic() + seconds
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise SystemExit(f"test-llm: FAILED: {what} did not happen within {seconds:g} s")
        time.sleep(0.05)


def check(holds, what):
    if not holds:
        raise SystemExit(f"test-llm: FAILED: {what}")
    say(f"ok: {what}")


def reachable(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


class Model:
    """The real model in a process of its own."""

    def __init__(self, stack, directory):
        self.key = "sk-" + secrets.token_hex(16)
        self.url = f"http://127.0.0.1:{free_port()}"
        log = stack.enter_context(open(directory / "model.log", "wb"))
        command = [sys.executable, str(ROOT / "scripts/real_model.py"), self.url.rpartition(":")[2], self.key]
        command += [str(ROOT / ".tidegate/llm"), str(TOKENS)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        stack.callback(stop, self.process)
        until("the model server", START_S, lambda: self.process.poll() is not None or reachable(self.url + "/health"))
        check(self.process.poll() is None, "a real model answers on this machine")

    def figure(self, name):
        request = urllib.request.Request(self.url + "/metrics", headers={"Authorization": f"Bearer {self.key}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"llamacpp:{name} "):
                    return float(line.split()[1])
        raise SystemExit(f"test-llm: FAILED: the model server does not show {name}")


class Tidegate:
    """`tidegate dev` with the model in the place of the scripted provider, and a client."""

    def __init__(self, stack, binary, directory, model):
        self.binary = binary
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "CONFIG_"))}
        environment["TIDEGATE_DATA_DIR"] = str(directory / "data")
        environment["TIDEGATE_LISTEN"] = f"127.0.0.1:{free_port()}"
        environment["TIDEGATE_LLM_API_KEY"] = model.key
        environment["TIDEGATE_LOG_LEVEL"] = "debug"
        # Renewals carry the cancel mark: short ones keep this test short.
        environment["TIDEGATE_LEASE_MS"], environment["TIDEGATE_RENEW_MS"] = "6000", "1000"
        self.environment = environment
        self.log = directory / "tidegate.log"
        log = stack.enter_context(open(self.log, "wb"))
        command = [binary, "--json", "dev", "--llm", model.url + "/v1", "--llm-model", "gemma3-270m"]
        # Started outside of the checkout it finds no tool servers, which is what is wanted here.
        self.process = subprocess.Popen(
            command, env=environment, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
        )
        stack.callback(stop, self.process)
        ready = self.process.stdout.readline()
        if not ready:
            raise SystemExit("test-llm: FAILED: `tidegate dev` ended:\n" + self.logged()[-4000:])
        self.ready = json.loads(ready)
        check(self.ready["ready"] and not self.ready["tools"], f"tidegate dev is ready with {self.ready['model']}")
        self.environment["TIDEGATE_PROFILE"] = self.ready["profile"]
        self.profile = tomllib.loads(pathlib.Path(self.ready["profile"]).read_text())

    def logged(self):
        return self.log.read_text(errors="replace")

    def cli(self, *arguments, text=None):
        command = [self.binary, "--json", *arguments]
        done = subprocess.run(command, env=self.environment, input=text, text=True, capture_output=True, timeout=60)
        if done.returncode != 0:
            raise SystemExit(f"test-llm: FAILED: tidegate {' '.join(arguments)}: {done.stderr or done.stdout}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def call(self, method, path, body=None, accept="application/json"):
        key = self.profile["keys"][self.profile["default"]]
        headers = {"Authorization": f"Bearer {key}", "Accept": accept, "Content-Type": "application/json"}
        headers["Idempotency-Key"] = secrets.token_hex(16)
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.profile["url"] + path, data, headers, method=method)
        try:
            return urllib.request.urlopen(request, timeout=TURN_S)
        except urllib.error.HTTPError as error:
            raise SystemExit(f"test-llm: FAILED: {method} {path}: {error.code} {error.read().decode()}") from None

    def turn(self, text):
        """Says something in a new conversation and yields (time, event) as the events arrive."""
        with self.call("POST", "/v1/conversations", {}) as answer:
            conversation = json.load(answer)["conversationId"]
        path = f"/v1/conversations/{conversation}/turns"
        with self.call("POST", path, {"input": text}, accept="text/event-stream") as stream:
            for line in stream:
                if line.startswith(b"data:"):
                    yield time.monotonic(), json.loads(line[5:])


def stop(process):
    """Ends a process that this test started."""
    if process.poll() is not None:
        return
    if process.stdin:
        process.stdin.close()
    else:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def hidden(tidegate, secret, more=""):
    shown = json.dumps(tidegate.cli("provider", "list")) + json.dumps(tidegate.ready) + tidegate.logged() + more
    check(secret not in shown, "the provider's key is in no answer, no event and no log")


def streamed(tidegate, model):
    before = model.figure("tokens_predicted_total")
    deltas, ended, usage, run = [], None, None, None
    for at, event in tidegate.turn("The capital of France is"):
        kind, body = event["kind"], event["body"]
        run = event.get("runId", run)
        if kind == "message.delta":
            deltas.append((at, body["text"]))
        elif kind == "model.called":
            usage = body["usage"]
        elif kind == "run.ended":
            ended = body
    check(ended and ended["state"] == "succeeded", f"the turn succeeded ({ended})")
    text = "".join(text for _, text in deltas)
    check(text.strip(), f"the model said something ({text[:40]!r}…)")
    check(len(deltas) >= 2 and deltas[-1][0] - deltas[0][0] > 0.2, "it arrived in pieces, while it was being said")
    produced = model.figure("tokens_predicted_total") - before
    check(str(int(produced)) in json.dumps(usage), f"the figures booked are the model's ({int(produced)} in {usage})")


def cancelled(tidegate, model):
    for _ in range(5):
        before = model.figure("tokens_predicted_total")
        run, ended, asked_at, ended_at = None, None, None, None
        for at, event in tidegate.turn("Once upon a time, in a land far away, there lived a king who had three sons."):
            run = event.get("runId") or event["body"].get("runId") or run
            if event["kind"] == "message.delta" and asked_at is None:
                run = run or newest_run(tidegate)
                with tidegate.call("POST", f"/v1/runs/{run}/cancel", {}) as answer:
                    answer.read()
                asked_at = at
            elif event["kind"] == "run.ended":
                ended, ended_at = event["body"], at
        if ended and ended["state"] == "succeeded":
            say("the model was done before it could be cancelled; asking again")
            continue
        check(asked_at and ended and ended["state"] == "cancelled", f"the turn was cancelled ({ended})")
        until("the model to be free", FREE_S, lambda: model.figure("requests_processing") == 0)
        said = model.figure("tokens_predicted_total") - before
        check(said < TOKENS, f"the model stopped at {int(said)} of {TOKENS} tokens, {ended_at - asked_at:.1f} s after the cancel")
        return
    raise SystemExit("test-llm: FAILED: the model was always done before it could be cancelled")


def newest_run(tidegate):
    with tidegate.call("GET", "/v1/runs?limit=1") as answer:
        return json.load(answer)["items"][0]["runId"]


def wrong_key(tidegate, model):
    tidegate.cli("provider", "set", "real", "--base-url", model.url + "/v1", "--api-key-stdin", text="sk-wrong-0123456789")
    ended, seen = None, ""
    for _, event in tidegate.turn("Hello"):
        seen += json.dumps(event)
        if event["kind"] == "run.ended":
            ended = event["body"]
    check(ended and ended["state"] == "failed" and ended["code"] == "PROVIDER_FAILED", f"a wrong key fails the turn ({ended})")
    hidden(tidegate, "sk-wrong", seen)


def main():
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    directory = pathlib.Path(tempfile.mkdtemp(prefix="tg-llm-"))
    # The database may run as another user, who must be able to pass through.
    directory.chmod(0o755)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        model = Model(stack, directory)
        tidegate = Tidegate(stack, binary, directory, model)
        streamed(tidegate, model)
        cancelled(tidegate, model)
        hidden(tidegate, model.key)
        wrong_key(tidegate, model)
    say("all passed")


main()
