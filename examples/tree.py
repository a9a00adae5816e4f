#!/usr/bin/env python3
"""A parent that gives the lines of a text to children and waits for them, on top of worker.py. See README.md."""
import worker

MANY = 4  # lines that are counted without asking


def may_go_on(attempt, lines, context):
    """Whether a person has agreed; asks where nobody has been asked yet, which ends the attempt."""
    if lines <= MANY:
        return True
    for asked in context.get("inputs", []):
        return asked["answer"]["confirmed"]
    attempt.write("wait", input={"kind": "confirmation", "prompt": f"Count {lines} lines?"})
    return None


def parent(attempt):
    """Runs from the top in each attempt: keys make the children the same, the context says what became of them."""
    lines = attempt.run["input"]["text"].splitlines()
    context = attempt.write("context", limit=1)
    agreed = may_go_on(attempt, len(lines), context)
    if agreed is None:
        return
    if not agreed:
        return attempt.write("complete", result={"words": None, "refused": True})
    children = {child["key"]: child for child in context.get("children", [])}
    for number, line in enumerate(lines):
        if f"line-{number}" not in children:
            attempt.write("children", key=f"line-{number}", capability="demo.line", input={"text": line})
    if len(children) < len(lines) or any(child["state"] not in ("succeeded", "failed", "cancelled", "expired") for child in children.values()):
        return attempt.write("wait", children={"mode": "all"})  # no lease, no slot, no count until the last one has ended
    lost = {child["key"]: child["code"] for child in children.values() if child["state"] != "succeeded"}
    words = sum(child["result"]["words"] for child in children.values() if child["state"] == "succeeded")
    attempt.write("complete", result={"words": words, "lost": lost})


def work(attempt):
    if attempt.cancel:
        return attempt.write("fail", code="CANCELLED", retryable=False)
    if worker.stopping.is_set():
        return attempt.write("release")
    if attempt.run["capability"] == "demo.count":
        return parent(attempt)
    attempt.write("complete", result={"words": len(attempt.run["input"]["text"].split())})


if __name__ == "__main__":
    worker.work = work
    worker.main()
