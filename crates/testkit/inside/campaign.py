#!/usr/bin/python3
"""One fault at one step of a run on a board, and whether the machine is afterwards as it has to be.

    campaign.py prepare MODEL               what there is to try: the steps of `apply` and of `undo`, and what each changes
    campaign.py try MODEL RUN STEP FAULT    one trial
    campaign.py hold MODEL RUN STEP         goes to where a trial `reset` resets the machine, says so, and waits for that
    campaign.py after-reset MODEL           the rest of such a trial, after the reset

Each prints one line of JSON. RUN is the run that meets the fault: `apply`; `undo` of a complete apply; `guard`, which takes back
an apply that nobody confirms; `guarded`, an apply that a guard watches. The pictures of before and after are `reader.py`'s, the
moments `tracer.py`'s.
"""
import json
import os
import sys
import time

from reader import differences, state
from tracer import CONT, Ended, Program, run, run_numbers, said

KEPT = "/root/campaign.json"
# What each step changes, which is the same on each board of this model and this build.
MEASURED = "/root/campaign-steps.json"
RUNS = "/var/lib/penstock/runs"
SMALL_DISK = "/run/campaign-disk"
FILLER = SMALL_DISK + "/filler"
# How long a run goes on after a fault at most: a guest's deadline and taking back come into it.
PATIENCE = 300


class Trial:
    def __init__(self, model, kept):
        self.model, self.kept, self.wrong, self.notes = model, kept, [], []
        self.variables, self.over = {}, None

    # What is run and compared.

    def penstock(self, *words, statuses=(0,)):
        ended = run("penstock", *words, env={**os.environ, **self.variables})
        if ended.returncode not in statuses:
            last = " / ".join(ended.stderr.strip().splitlines()[-4:])
            self.wrong.append("`penstock %s` ended with %d: %s" % (" ".join(words), ended.returncode, last))
        return ended

    def expect(self, what, picture):
        found = state(self.kept["files"])
        self.wrong.extend("%s: %s" % (what, line) for line in differences(self.kept[picture], found))

    def undo(self, what):
        if os.path.exists(FILLER):
            # An apply has taken the room for its way back. An undo that was under way has used that up: then another is done all the
            # same, and says that it could not be recorded; or it is refused, with the reason, before anything is touched.
            ended = self.penstock("undo", "--quiet", statuses=(0, 1, 70) if self.over == "undo" else (0,))
            if ended.returncode in (0, 1):
                if ended.returncode == 1 and "could not be recorded" not in ended.stderr:
                    self.wrong.append("undo ended with 1: %s" % ended.stderr)
                self.expect(what + ", with a full disk", "before")
            elif ended.returncode == 70 and "No space left" not in ended.stderr:
                self.wrong.append("undo does not say that the disk is full: %s" % ended.stderr)
            else:
                self.notes.append("undo is refused while the disk is full")
            os.unlink(FILLER)
        self.penstock("undo", "--quiet")
        self.expect(what, "before")

    def apply_again(self, what):
        self.penstock("apply", "--quiet", self.model)
        self.expect(what, "wanted")
        self.undo("after the undo of all, %s" % what)

    # The run that meets the fault.

    def batches(self, over):
        return self.kept["batches"]["apply" if over in ("apply", "guarded") else "undo"]

    def start(self, over):
        """The run over which the fault comes, watched."""
        runs = self.variables.get("PENSTOCK_JOURNAL", "/var/lib/penstock") + "/runs"
        if over == "undo":
            self.penstock("apply", "--quiet", self.model)
            return Program(runs, ["penstock", "undo", "--quiet"], variables=self.variables)
        if over == "guard":
            # Long enough to find the guard and to watch it before it begins, also on a busy board.
            self.penstock("apply", "--quiet", self.model, "--confirm-within", "10s")
            guard = self.guard()
            if guard is None:
                raise LookupError("no guard runs")
            return Program(runs, pid=guard)
        more = ["--confirm-within", "10min"] if over == "guarded" else []
        return Program(runs, ["penstock", "apply", "--quiet", self.model, *more], variables=self.variables)

    def guard(self):
        found = run("pgrep", "-f", "penstock guard [0-9]").stdout.split()
        return int(found[0]) if found else None

    def await_guard(self):
        """Until the guard has come to its end, of itself."""
        deadline = time.monotonic() + PATIENCE
        while self.guard() is not None:
            if time.monotonic() > deadline:
                self.wrong.append("the guard has not ended within %d s" % PATIENCE)
                return
            time.sleep(0.1)

    def stopped(self, over, step, kind):
        """The run, stopped at a moment of a step: the middle of its changes, the first of them, or one that `tracer.py` names."""
        batches = self.batches(over)
        batch = next(batch for batch in batches if step in batch["steps"])
        changes, place = len(batch["changes"]), batch["steps"].index(step)
        if kind in ("middle", "first"):
            if not changes:
                raise LookupError("nothing of it changes the machine by a system call of Penstock's own")
            # Of steps that are carried out together each has its share of the changes.
            share = (place + (0.5 if kind == "middle" else 0)) / len(batch["steps"])
            nth = min(int(changes * share) + 1, changes)
            moment = "%s:%d:%d" % ("changed" if kind == "middle" else "change", step, nth)
        else:
            if kind == "begun" and place:
                raise LookupError("the same moment as with step %d: they are begun together" % batch["steps"][0])
            moment = "%s:%d" % (kind, step)
        program = self.start(over)
        steps = [batch["steps"] for batch in batches]
        try:
            return program, program.until(moment, steps)
        except Ended:
            # It was too fast to be stopped in time.
            self.notes.append("the moment was missed once")
        if over != "undo":
            self.await_guard()
            run("penstock", "undo", "--quiet", env={**os.environ, **self.variables})
        program = self.start(over)
        return program, program.until(moment, steps, thorough=True)

    def end_as_said(self, over, status):
        """What a run must have left that came to its end by itself with this status."""
        self.notes.append("ended with %s" % status)
        if status is None:
            self.wrong.append("%s did not end within %d s" % (over, PATIENCE))
        elif over == "undo":
            # What it could not take back it must not call taken back.
            if status == 0:
                self.expect("undo ended with 0", "before")
            elif status not in (1, 5, 7, 8, 70):
                self.wrong.append("undo ended with %d" % status)
            self.undo("after another undo")
        elif status == 0:
            self.undo("after undo of an apply that ended with 0")
        elif status in (1, 7):
            # A guest failed alone, or it is said that the machine is between two states.
            self.undo("after undo of an apply that ended with %d" % status)
        elif status in (5, 8, 70):
            self.expect("apply ended with %d, by itself" % status, "before")
        else:
            self.wrong.append("apply ended with %d: %s" % (status, (said("/run/campaign.log") or "")[-600:]))

    # The faults.

    def kill(self, over, step, kind):
        program, _ = self.stopped(over, step, kind)
        program.kill()
        if over == "guarded":
            self.await_guard()
            self.expect("after the guard", "before")
            return
        if over == "guard":
            self.undo("after undo")
            return
        self.penstock("status")
        self.undo("after undo")
        program, _ = self.stopped(over, step, kind)
        program.kill()
        self.apply_again("after apply")

    def fail(self, over, step):
        program, thread = self.stopped(over, step, "first")
        try:
            self.notes.extend(program.fail(thread, step)[:3])
            status = program.to_its_end(PATIENCE)
        except Ended as ended:
            status = ended.status
        if over in ("guard", "guarded"):
            self.await_guard()
            self.expect("after the guard", "before")
            return
        self.end_as_said(over, status)
        self.apply_again("after apply")

    def hang(self, over, step):
        try:
            program, _ = self.stopped(over, step, "first")
        except LookupError:
            program, _ = self.stopped(over, step, "begun")
        # It stands still. Nobody else comes in, everybody is told, and it can be killed.
        busy = self.penstock("apply", "--quiet", self.model, statuses=(9,))
        if busy.returncode == 9 and "penstock" not in busy.stderr:
            self.wrong.append("who is at it is not told: %s" % busy.stderr)
        self.penstock("status", statuses=(0, 1))
        program.kill()
        self.undo("after undo")

    def full(self, over, step):
        self.over = over
        os.makedirs(SMALL_DISK, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", SMALL_DISK)
        os.mkdir(SMALL_DISK + "/runs", 0o700)
        self.variables = {"PENSTOCK_JOURNAL": SMALL_DISK}
        try:
            program, thread = self.stopped(over, step, "begun")
            with open(FILLER, "wb", 0) as filler:
                for size in (65536, 4096, 1):
                    try:
                        while True:
                            filler.write(b"\0" * size)
                    except OSError:
                        pass
            program.resume(thread, CONT)
            if over == "guard":
                deadline = time.monotonic() + PATIENCE
                while differences(self.kept["before"], state(self.kept["files"])) and time.monotonic() < deadline:
                    # A thread of its own may have been started meanwhile; all go on.
                    if program.to_its_end(1) is not None:
                        break
                self.expect("by the guard, with a full disk", "before")
                os.unlink(FILLER)
                program.to_its_end(PATIENCE)
                return
            self.end_as_said(over, program.to_its_end(PATIENCE))
            if os.path.exists(FILLER):
                os.unlink(FILLER)
            self.apply_again("after apply, with room again")
        finally:
            run("umount", "-l", SMALL_DISK)

    def carry_out(self, over, step, fault):
        kinds = {"before": "begun", "middle": "middle", "carried": "done", "after": "told"}
        if fault in kinds:
            self.kill(over, step, kinds[fault])
        else:
            {"fail": self.fail, "hang": self.hang, "full": self.full}[fault](over, step)


def guarded_trial(trial, work):
    """Does `work`; gives what is to be printed of it."""
    began, not_tried = time.monotonic(), None
    try:
        work()
    except LookupError as error:
        not_tried = str(error)
    except Ended as ended:
        trial.wrong.append("it ended with %d before the moment came: %s" % (ended.status, (said("/run/campaign.log") or "")[-600:]))
    seconds = round(time.monotonic() - began, 1)
    return {"wrong": trial.wrong, "notes": trial.notes, "not_tried": not_tried, "seconds": seconds}


def measure(over, words, measured):
    """Runs it watched, for the batches in which it begins its steps and what each changes; gives what was wrong."""
    wrong, earlier = [], run_numbers(RUNS)
    status, batches = Program(RUNS, ["penstock", *words]).changes()
    if status:
        wrong.append("%s ended with %d: %s" % (over, status, said("/run/campaign.log")))
    journal = said("%s/%s/journal" % (RUNS, max(run_numbers(RUNS) - earlier))) or ""
    entries = list(map(json.loads, journal.splitlines()))
    intents = {entry["step"]: entry["action"] for entry in entries if entry["entry"] == "intent"}
    measured["batches"][over] = batches
    measured["actions"][over] = {
        str(step): next(iter(action)) if isinstance(action, dict) else action for step, action in intents.items()
    }
    # What an undo finds so already it passes over: no such step is begun, and none can be met by a fault.
    begun = {step for entry in entries if entry["entry"] == "begun" for step in entry["steps"]}
    missed = begun - {step for batch in batches for step in batch["steps"]}
    if missed:
        wrong.append("%s: steps %s were not seen" % (over, sorted(missed)))
    return wrong


def prepare(model):
    """Applies it and takes it back, for what is there before and after; and again, for what each step changes, unless another board
    of this model has shown that."""
    planned = json.loads(run("penstock", "plan", "--json", model).stdout)["steps"]
    files = sorted(step["action"]["write_file"]["path"] for step in planned if "write_file" in step["action"])
    before, wrong = state(files), []
    ways = {"apply": ["apply", "--quiet", model], "undo": ["undo", "--quiet"]}
    for over, words in ways.items():
        ended = run("penstock", *words)
        if ended.returncode:
            wrong.append("%s ended with %d: %s" % (over, ended.returncode, ended.stderr))
        if over == "apply":
            wanted = state(files)
    wrong.extend("after the first undo: %s" % line for line in differences(before, state(files)))
    measured = json.loads(said(MEASURED) or "null")
    if measured is None:
        measured = {"batches": {}, "actions": {}}
        for over, words in ways.items():
            wrong.extend(measure(over, words, measured))
        if not wrong:
            with open(MEASURED, "w") as file:
                json.dump(measured, file)
    batches, actions = measured["batches"], measured["actions"]
    kept = {"files": files, "before": before, "wanted": wanted, "batches": batches}
    with open(KEPT, "w") as file:
        json.dump(kept, file)
    os.sync()
    steps = {
        over: [
            {"step": step, "action": actions[over][str(step)], "changes": len(batch["changes"]), "together": len(batch["steps"])}
            for batch in batches[over]
            for step in batch["steps"]
        ]
        for over in batches
    }
    return {"wrong": wrong, "steps": steps, "differs": len(differences(before, wanted))}


def main():
    verb, model, *more = sys.argv[1:]
    # What waits for a moment is not to wait for a CPU; what it starts is scheduled as ever.
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    if verb == "prepare":
        print(json.dumps(prepare(model)))
        return
    with open(KEPT) as file:
        trial = Trial(model, json.load(file))
    if verb == "try":
        over, step, fault = more
        print(json.dumps(guarded_trial(trial, lambda: trial.carry_out(over, int(step), fault))))
    elif verb == "hold":
        over, step = more

        def hold():
            try:
                trial.stopped(over, int(step), "middle")
            except LookupError:
                trial.stopped(over, int(step), "begun")

        print(json.dumps(guarded_trial(trial, hold)), flush=True)
        time.sleep(600)
    elif verb == "after-reset":

        def after():
            trial.penstock("status", statuses=(0, 1))
            trial.undo("after a reset and undo")
            trial.apply_again("after a reset, undo and apply")

        print(json.dumps(guarded_trial(trial, after)))


if __name__ == "__main__":
    main()
