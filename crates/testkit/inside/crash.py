#!/usr/bin/python3
"""What a crash leaves, seen on a board without Penstock's help.

    crash.py kill MODEL [MOMENT...]
    crash.py state [FILE...]
    crash.py torn

`kill` kills `penstock apply` (SIGKILL) at exact moments, each followed by an undo and by another apply, and compares what is there.
MOMENT is one of `tracer.py`: `begun:STEP`, `done:STEP` or `told:STEP`; without any, `done` of every step. One line of JSON for
each moment, and one before them.

`state` prints what is there as JSON, these files too: see `reader.py`. `torn` prints what of Penstock's files is neither whole
nor absent, one a line.
"""
import glob
import json
import os
import signal
import sys
import time

from reader import differences, state
from tracer import Ended, Program, begun_in, run, run_numbers

RUNS = "/var/lib/penstock/runs"


def killed_at(moment, batches, words):
    """Runs a program, which begins its steps in these batches, and kills it at that moment; gives how it ended, -9 when it
    was killed."""
    program = Program(RUNS, words)
    try:
        program.until(moment, batches)
    except Ended as ended:
        return ended.status
    return program.kill()


def one(model, moment, batches, files, before, wanted):
    """One moment: killed and taken back, killed and gone on from, and that taken back too."""
    began, wrong = time.monotonic(), []

    def expect(what, found, expected):
        if found != expected:
            wrong.append("%s: %s, not %s" % (what, found, expected))

    def penstock(*words):
        ended = run("penstock", *words)
        expect(" ".join(words), ended.returncode, 0)
        if ended.returncode:
            wrong.extend(ended.stderr.strip().splitlines()[-4:])

    def killed():
        expect("apply", killed_at(moment, batches, ["penstock", "apply", "--quiet", model]), -signal.SIGKILL)
        if "half-way" not in run("penstock", "status").stdout:
            wrong.append("status does not say that a run was cut off")

    def there(what, expected):
        wrong.extend("%s: %s" % (what, line) for line in differences(expected, state(files)))

    killed()
    penstock("undo", "--quiet")
    there("after undo", before)
    killed()
    penstock("apply", "--quiet", model)
    there("after apply", wanted)
    penstock("undo", "--quiet")
    there("after the undo of both", before)
    return {"moment": moment, "wrong": wrong, "seconds": round(time.monotonic() - began, 1)}


def kill(model, moments):
    plan = json.loads(run("penstock", "plan", "--json", model).stdout)
    steps = plan["steps"]
    files = sorted(step["action"]["write_file"]["path"] for step in steps if "write_file" in step["action"])
    before = state(files)
    applied = run("penstock", "apply", "--quiet", model)
    wanted = state(files)
    batches = begun_in(RUNS, max(run_numbers(RUNS)))
    undone = run("penstock", "undo", "--quiet")
    head = {
        "steps": len(steps),
        "apply": applied.returncode,
        "undo": undone.returncode,
        "changed": len(differences(before, wanted)),
        "wrong": differences(before, state(files)),
    }
    print(json.dumps(head), flush=True)
    for moment in moments or ["done:%d" % step["id"] for step in steps]:
        print(json.dumps(one(model, moment, batches, files, before, wanted)), flush=True)


def torn():
    """Files of runs that are neither whole nor absent. A journal may end anywhere in its last line."""
    for path in sorted(glob.glob(RUNS + "/[0-9]*/*")):
        if os.path.isdir(path) and path.endswith("/reserve"):
            # The room for the way back: its files hold nothing.
            continue
        text = said_exactly(path)
        try:
            if path.endswith(".json"):
                json.loads(text)
            elif path.endswith("/journal"):
                for line in text[: text.rfind("\n") + 1].splitlines():
                    json.loads(line)
            elif path.endswith((".yaml", ".log")):
                pass
            elif not path.endswith((".part", ".new")):
                print(path, "is not known")
        except ValueError as error:
            print(path, error)


def said_exactly(path):
    with open(path) as file:
        return file.read()


def main():
    verb, more = sys.argv[1], sys.argv[2:]
    if verb == "kill":
        kill(more[0], more[1:])
    elif verb == "state":
        print(json.dumps(state(more), sort_keys=True))
    elif verb == "torn":
        torn()


if __name__ == "__main__":
    main()
