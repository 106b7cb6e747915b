#!/usr/bin/python
"""Takes back what a run has changed."""

DOCUMENTATION = r"""
module: undo
short_description: Take back what an earlier run has changed
description:
  - Runs C(penstock undo). Nothing to undo is no error.
version_added: 0.1.0
author: The Penstock developers (@penstock)
options:
  run:
    description: The run's number. Without it, the last run that left changes.
    type: int
  with_later:
    description: Also take back later runs that depend on O(run), newest first.
    type: bool
    default: false
  persist:
    description: Take back only what was set up for the next boots; not together with O(run).
    type: bool
    default: false
extends_documentation_fragment:
  - penstock.machine.penstock
  - penstock.machine.penstock.allow
attributes:
  check_mode:
    support: full
    description: Says whether a run has left anything.
"""

EXAMPLES = r"""
- name: Back to what was before
  penstock.machine.undo:
"""

RETURN = r"""
document:
  description: The document of C(undo); in check mode that of C(undo --list).
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.penstock.machine.plugins.module_utils.penstock import (
    ALLOW,
    COMMON,
    DOES_NOT_HOLD,
    HALF_WAY,
    HOLDS,
    Penstock,
    allowed,
    not_with,
)


def standing(document, params):
    """Whether any run that would be taken back has left something."""
    for run in document.get("runs") or []:
        wanted = params["run"] in (None, run["run"]) or (params["with_later"] and run["run"] > params["run"])
        kind = run["purpose"] == "persist" if params["persist"] else not is_undo(run["purpose"])
        if wanted and kind and run["phase"] != "nothing":
            return True
    return False


def is_undo(purpose):
    return purpose == "undo" or (isinstance(purpose, dict) and "undo" in purpose)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON,
            **ALLOW,
            run=dict(type="int"),
            with_later=dict(type="bool", default=False),
            persist=dict(type="bool", default=False),
        ),
        required_if=[("with_later", True, ["run"])],
        supports_check_mode=True,
    )
    not_with(module, "persist", "run")
    penstock = Penstock(module)
    params = module.params
    listed = penstock.run("undo", "--list")
    if listed.status != HOLDS:
        penstock.fail(listed)
    if module.check_mode:
        module.exit_json(changed=standing(listed.document, params), document=listed.document)
    words = allowed(module)
    words += ["--with-later"] if params["with_later"] else []
    words += ["--persist"] if params["persist"] else []
    words += [params["run"]] if params["run"] is not None else []
    answer = penstock.run("undo", *words)
    steps = (answer.document.get("plan") or {}).get("steps") or []
    if answer.status != HOLDS:
        penstock.fail(answer, changed=bool(steps) and answer.status in (DOES_NOT_HOLD, HALF_WAY))
    module.exit_json(changed=bool(steps), document=answer.document)


if __name__ == "__main__":
    main()
