#!/usr/bin/python
"""Makes a machine as a model describes it."""

DOCUMENTATION = r"""
module: model
short_description: Make a machine as a Penstock model describes it
description:
  - Plans with C(penstock plan) first. When the plan is empty nothing is done; otherwise C(penstock apply) carries it out.
  - VFs, their attributes and drivers, and the guests that own them are set up in the order that the hardware needs. Each step is
    recorded before it is carried out, and taken back when a later one fails.
  - What would cut somebody off (the default route, the SSH connection, a mounted file system, a running guest) fails the task before
    anything is changed, unless O(allow) names it.
version_added: 0.1.0
author: The Penstock developers (@penstock)
options:
  confirm_within:
    description:
      - Undo everything unless M(penstock.machine.confirm) runs within this time after the apply, for example V(60s) or V(5m).
      - Run the confirmation over a new connection. The role P(penstock.machine.apply#role) does.
      - Not together with O(persist), since what is taken back must not last.
    type: str
  persist:
    description:
      - Also apply at each boot, before guests start, and set what the kernel needs on its command line.
      - Where the model can come true only after a reboot, just that is done, and RV(reboot_required) is true.
      - Where no boot loader's tool is found that puts words on the kernel's command line, the task fails, and names them, until the running
        kernel has them.
    type: bool
    default: false
extends_documentation_fragment:
  - penstock.machine.penstock
  - penstock.machine.penstock.model
  - penstock.machine.penstock.allow
attributes:
  check_mode:
    support: full
    description: The plan is made and returned; the machine is left alone.
  diff_mode:
    support: full
    description: The plan as people read it, with each value before and after.
seealso:
  - module: penstock.machine.confirm
  - module: penstock.machine.verify
"""

EXAMPLES = r"""
- name: Eight VFs, one of them for a container
  penstock.machine.model:
    content: |
      machine: node-1
      nics:
        NET0: {match: {slot: enp4s0f0}, vfs: 8}
      guests:
        web: {functions: [NET0#0]}

- name: Show what a model would change
  penstock.machine.model:
    src: /etc/penstock/node.yaml
  check_mode: true
  diff: true

- name: Change the NIC that carries the SSH connection, and have it taken back unless somebody confirms
  penstock.machine.model:
    src: /etc/penstock/node.yaml
    allow: [default-route:eno1]
    confirm_within: 2m
"""

RETURN = r"""
steps:
  description: How many steps the plan had.
  returned: when the model could be planned
  type: int
dangers:
  description:
    - What the plan takes away from the machine's users and O(allow) accepts; each has C(name), C(lost) and C(way_round).
    - The message of a task that was refused names those that are not accepted.
  returned: when the model could be planned
  type: list
  elements: dict
reboot_required:
  description: Whether the model comes true, or comes true as well as it can, only after a reboot.
  returned: when the model could be planned
  type: bool
waits_for_confirmation:
  description: The run that is taken back unless it is confirmed.
  returned: when O(confirm_within) is given and something was changed
  type: int
status:
  description:
    - The name of Penstock's exit status, for example V(refused) or V(rolled-back).
    - With O(persist) V(does-not-fit) (of a plan) and V(does-not-hold) (of an apply) are no failure while only a reboot is missing.
  returned: always
  type: str
document:
  description: The document of C(plan), or of C(apply) when something was carried out.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.penstock.machine.plugins.module_utils.penstock import (
    ALLOW,
    COMMON,
    DOES_NOT_FIT,
    DOES_NOT_HOLD,
    HALF_WAY,
    HOLDS,
    MODEL,
    Penstock,
    allowed,
    carried_out,
    model_file,
    not_with,
    waiting,
)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON, **MODEL, **ALLOW, confirm_within=dict(type="str"), persist=dict(type="bool", default=False)
        ),
        mutually_exclusive=[("src", "content")],
        required_one_of=[("src", "content")],
        supports_check_mode=True,
    )
    not_with(module, "persist", "confirm_within")
    penstock = Penstock(module)
    persist = ["--persist"] if module.params["persist"] else []
    with model_file(penstock) as model:
        words = model + allowed(module) + persist
        plan = penstock.run("plan", *words)
        document = plan.document
        result = dict(
            steps=len(document.get("steps") or []),
            dangers=document.get("dangers") or [],
            reboot_required=bool(document.get("needs_reboot")),
        )
        # A plan that is there and does not fit is one for after the next boot. None of its steps is carried out before. Where more than the
        # boot is missing (words that no boot loader's tool puts on the kernel's command line) each run fails, and not only the first.
        waits = plan.status == DOES_NOT_FIT and result["reboot_required"] and len(document.get("errors") or []) == 1
        if plan.status != HOLDS and not (waits and persist):
            penstock.fail(plan, changed=False, **result)
        changed = bool(document.get("persist") or (result["steps"] and not waits))
        if module._diff:
            result["diff"] = dict(prepared=penstock.text("plan", *words))
        if module.check_mode or not changed:
            module.exit_json(changed=changed, status=document["status"], document=document, **result)
        within = module.params["confirm_within"]
        confirm = ["--confirm-within=%s" % within] if within else []
        done = penstock.run("apply", *(words + confirm))
    set_up = waits and done.status == DOES_NOT_HOLD and not done.document.get("errors")
    if done.status != HOLDS and not set_up:
        # A guest that fails leaves the rest changed; a machine that is half-way is changed, too, and so is one whose next boots differ.
        changed = carried_out(done.document) or carried_out(done.document.get("persist"))
        penstock.fail(done, changed=changed or done.status in (DOES_NOT_HOLD, HALF_WAY), **result)
    result.update(changed=True, status=done.document["status"], document=done.document)
    if within:
        runs = waiting(penstock)
        if not runs:
            why = "nothing waits to be confirmed: the time (%s) is over, or somebody has decided already" % within
            module.fail_json(msg=why, **result)
        result["waits_for_confirmation"] = runs[-1]
    module.exit_json(**result)


if __name__ == "__main__":
    main()
