#!/usr/bin/python
"""Facts about SR-IOV NICs and their VFs."""

DOCUMENTATION = r"""
module: scan
short_description: Gather facts about SR-IOV NICs, VFs, guests and IOMMU groups
description:
  - Runs C(penstock scan) and returns the machine's inventory as C(ansible_facts.penstock).
  - Every VF that could exist is in it, with the PCI address that it would get.
version_added: 0.1.0
author: The Penstock developers (@penstock)
options:
  probe:
    description:
      - First find out what each PF's driver supports, on an unused VF that is reset afterwards.
      - Ignored in check mode.
    type: bool
    default: false
extends_documentation_fragment: penstock.machine.penstock
attributes:
  check_mode:
    support: full
    description: Nothing is changed.
"""

EXAMPLES = r"""
- name: Know the NICs
  penstock.machine.scan:

- name: Print the PFs
  ansible.builtin.debug:
    msg: "{{ ansible_facts.penstock.pfs | map(attribute='bdf') | list }}"
"""

RETURN = r"""
ansible_facts:
  description: The inventory under C(penstock), as C(penstock scan --json) prints it.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.penstock.machine.plugins.module_utils.penstock import COMMON, HOLDS, Penstock


def main():
    module = AnsibleModule(
        argument_spec=dict(COMMON, probe=dict(type="bool", default=False)), supports_check_mode=True
    )
    penstock = Penstock(module)
    probe = module.params["probe"] and not module.check_mode
    answer = penstock.run("scan", *(["--probe"] if probe else []))
    if answer.status != HOLDS:
        penstock.fail(answer)
    module.exit_json(changed=False, ansible_facts=dict(penstock=answer.document))


if __name__ == "__main__":
    main()
