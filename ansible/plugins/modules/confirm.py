#!/usr/bin/python
"""Keeps a change that waits to be confirmed."""

DOCUMENTATION = r"""
module: confirm
short_description: Keep what a guarded apply has changed
description:
  - Runs C(penstock confirm) for a run of M(penstock.machine.model) with O(penstock.machine.model#module:confirm_within).
  - "Run it over a new connection (C(meta: reset_connection) before it), which proves that the machine can still be reached."
version_added: 0.1.0
author: The Penstock developers (@penstock)
options:
  run:
    description:
      - The run's number. Without it, the run that waits; none is no error, and changes nothing. One that another user has begun is not
        confirmed so, and fails the task.
      - With it, a run that is no longer waiting fails the task, since what it did may have been taken back.
    type: int
extends_documentation_fragment: penstock.machine.penstock
attributes:
  check_mode:
    support: full
    description: Says whether a run waits, and not whether it may be confirmed. One that another user has begun counts, too.
"""

EXAMPLES = r"""
- name: Change the NIC that carries this connection
  penstock.machine.model:
    src: /etc/penstock/node.yaml
    allow: [default-route:eno1]
    confirm_within: 2m
  register: change

- name: Connect anew
  ansible.builtin.meta: reset_connection

- name: Keep the change
  when: change.waits_for_confirmation is defined
  penstock.machine.confirm:
    run: "{{ change.waits_for_confirmation }}"
"""

RETURN = r"""
run:
  description: The run that was confirmed.
  returned: when one waited
  type: int
document:
  description: The document of C(confirm).
  returned: when one was confirmed
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.penstock.machine.plugins.module_utils.penstock import COMMON, HOLDS, Penstock, waiting


def main():
    module = AnsibleModule(argument_spec=dict(COMMON, run=dict(type="int")), supports_check_mode=True)
    penstock = Penstock(module)
    wanted = module.params["run"]
    runs = waiting(penstock)
    if wanted is None and not runs:
        module.exit_json(changed=False)
    if module.check_mode:
        run = runs[-1] if wanted is None else wanted
        module.exit_json(changed=run in runs, run=run)
    # Who names no run is not to keep what somebody else has begun: that is for Penstock to see.
    answer = penstock.run("confirm", *([] if wanted is None else [wanted]))
    if answer.status != HOLDS:
        penstock.fail(answer)
    run = answer.document.get("run", wanted)
    module.exit_json(changed=run in runs, run=run, document=answer.document)


if __name__ == "__main__":
    main()
