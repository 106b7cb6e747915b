"""Options that several modules of penstock.machine have."""

from __future__ import annotations


class ModuleDocFragment:
    """What C(extends_documentation_fragment) adds."""

    DOCUMENTATION = r"""
options:
  executable:
    description: The program on the managed machine; a name is looked up in its C(PATH).
    type: str
    default: penstock
requirements:
  - C(penstock) on the managed machine
notes:
  - The module returns what C(penstock --json) prints, under C(document). Its keys are described in C(docs/json.md) of Penstock.
"""

    MODEL = r"""
options:
  src:
    description:
      - The model's path on the managed machine.
      - Templates of C(generate) are looked up beside it.
    type: path
  content:
    description:
      - The model itself. Use C(src) for a model that names templates.
      - Where guests have NICs of their own it has to say C(machine), another on each machine; their addresses rest on it.
    type: str
  nic:
    description: For a NIC of the model, the permanent MAC address of the PF to use in place of what C(match) selects.
    type: dict
    default: {}
  strict:
    description: Treat the model's warnings as errors.
    type: bool
    default: false
"""

    ALLOW = r"""
options:
  allow:
    description:
      - Dangers to accept, by the names that the message of a refused task has, for example V(default-route:eno1).
      - A danger that is not listed here fails the task before anything is changed.
    type: list
    elements: str
    default: []
"""
