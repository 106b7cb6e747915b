"""Runs C(penstock --json) on the managed machine and reads the document that it prints."""

import json
import os
import tempfile
from contextlib import contextmanager

# Exit statuses of Penstock that the modules tell apart (docs/exit-status.md).
HOLDS = 0
DOES_NOT_HOLD = 1
DOES_NOT_FIT = 6
HALF_WAY = 7

COMMON = dict(executable=dict(type="str", default="penstock"))
MODEL = dict(
    src=dict(type="path"),
    content=dict(type="str"),
    nic=dict(type="dict", default={}),
    strict=dict(type="bool", default=False),
)
ALLOW = dict(allow=dict(type="list", elements="str", default=[]))


class Answer:
    """What one run of Penstock came to."""

    def __init__(self, status, document, conversation):
        self.status = status
        self.document = document
        self.conversation = conversation

    def message(self):
        """The errors in one text, each with its causes and what to do, then the mistakes in the model, each with its place."""
        texts = []
        for error in self.document.get("errors") or []:
            text = ": ".join([error.get("message", "")] + list(error.get("causes") or []))
            hints = error.get("hints") or []
            texts.append(text + "".join("; " + hint for hint in hints))
        for found in self.document.get("diagnostics") or []:
            if found.get("severity") == "error":
                place = "%s:%s:%s" % (found.get("file"), found.get("line"), found.get("column"))
                help_ = "; " + found["help"] if found.get("help") else ""
                texts.append("%s: %s%s" % (place, found.get("message"), help_))
        if not texts:
            texts.append(self.conversation.strip() or "penstock ended with %s and said nothing" % self.status)
        return "\n".join(texts)

    def warnings(self):
        """The warnings about the model, with their places."""
        found = self.document.get("diagnostics") or []
        return [
            "%s:%s:%s: %s" % (one.get("file"), one.get("line"), one.get("column"), one.get("message"))
            for one in found
            if one.get("severity") == "warning"
        ]


class Penstock:
    """The program on the managed machine."""

    def __init__(self, module):
        self.module = module
        # What a model was called in a task that has its text, not its path.
        self.written = None
        self.path = module.params["executable"]
        if os.sep not in self.path:
            self.path = module.get_bin_path(self.path, required=True)

    def run(self, verb, *words):
        """Runs a verb; whatever its exit status, the answer is returned. What is no document fails the task."""
        command = [self.path, verb] + [str(word) for word in words]
        status, printed, conversation = self.module.run_command(command + ["--json"])
        if self.written:
            printed, conversation = (text.replace(self.written, "content") for text in (printed, conversation))
        try:
            document = json.loads(printed)
        except ValueError:
            self.module.fail_json(
                msg="%s printed no document: %s" % (" ".join(command), conversation.strip() or printed.strip()),
                rc=status,
            )
        answer = Answer(status, document, conversation)
        for warning in answer.warnings():
            self.module.warn(warning)
        return answer

    def text(self, verb, *words):
        """What a verb prints for people, whatever its exit status."""
        _status, printed, _conversation = self.module.run_command([self.path, verb] + [str(word) for word in words])
        return printed

    def fail(self, answer, **more):
        """Fails the task with what Penstock says."""
        status = answer.document.get("status")
        self.module.fail_json(
            msg=answer.message(), status=status, rc=answer.status, document=answer.document, **more
        )


@contextmanager
def model_file(penstock):
    """The path of the model, and the options that go with it."""
    module = penstock.module
    params = module.params
    options = ["--nic=%s=%s" % pair for pair in sorted(params["nic"].items())]
    if params["strict"]:
        options.append("--strict")
    if params["src"]:
        if not os.path.isfile(params["src"]):
            module.fail_json(msg="there is no model at %s on the managed machine" % params["src"])
        yield [params["src"]] + options
        return
    with tempfile.TemporaryDirectory(dir=module.tmpdir) as directory:
        path = os.path.join(directory, "model.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(params["content"])
        penstock.written = path
        yield [path] + options


def allowed(module):
    """The options that accept dangers."""
    return ["--allow=%s" % name for name in module.params["allow"]]


def carried_out(part):
    """Whether an apply, or its part for the next boots, did something that was not taken back."""
    part = part or {}
    done = [report.get("step") for report in part.get("steps") or [] if report.get("outcome") == "done"]
    return bool(set(done) - set(part.get("undone") or []))


def not_with(module, option, *others):
    """Fails the task where an option is set beside one that excludes it, as on the command line. C(false) and empty text set nothing."""
    given = [name for name in (option,) + others if module.params[name] not in (None, "") and module.params[name] is not False]
    if option in given and len(given) > 1:
        module.fail_json(msg="parameters are mutually exclusive: %s" % "|".join(given))


def waiting(penstock):
    """The runs that wait to be confirmed; fails the task when nobody can tell."""
    answer = penstock.run("status")
    if answer.status not in (HOLDS, DOES_NOT_HOLD) or "errors" in answer.document:
        penstock.fail(answer)
    return answer.document.get("open") or []
