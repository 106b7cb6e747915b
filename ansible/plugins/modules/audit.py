#!/usr/bin/python
"""Audits the settings that decide how late threads wake."""

DOCUMENTATION = r"""
module: audit
short_description: Audit real-time latency settings
description:
  - Runs C(penstock audit), which compares firmware, kernel, CPU and interrupt settings with what real-time guests need.
  - Fails unless nothing fails, contradicts or could not be seen.
version_added: 0.1.0
author: The Penstock developers (@penstock)
options:
  src:
    description:
      - A model's path on the managed machine; only what its real-time guests need is audited then, on their CPUs.
      - Without a model, the CPUs that the machine isolates are audited.
    type: path
  over:
    description: First observe interrupts, idle states and system management interrupts for this time, for example V(60s).
    type: str
  warn_only:
    description: Warn instead of failing.
    type: bool
    default: false
extends_documentation_fragment: penstock.machine.penstock
attributes:
  check_mode:
    support: full
    description: Nothing is changed.
"""

EXAMPLES = r"""
- name: Find out what makes threads wake late
  penstock.machine.audit:
    warn_only: true
  register: audit
"""

RETURN = r"""
holds:
  description: Whether nothing failed, contradicts or could not be seen.
  returned: always
  type: bool
score:
  description: How many rows came out how.
  returned: always
  type: dict
document:
  description: The document of C(audit), with all rows.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.penstock.machine.plugins.module_utils.penstock import (
    COMMON,
    DOES_NOT_HOLD,
    HOLDS,
    Penstock,
)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON, src=dict(type="path"), over=dict(type="str"), warn_only=dict(type="bool", default=False)
        ),
        supports_check_mode=True,
    )
    penstock = Penstock(module)
    params = module.params
    words = [params["src"]] if params["src"] else []
    words += ["--over=%s" % params["over"]] if params["over"] else []
    answer = penstock.run("audit", *words)
    document = answer.document
    if answer.status not in (HOLDS, DOES_NOT_HOLD) or "rows" not in document:
        penstock.fail(answer)
    result = dict(changed=False, holds=document["holds"], score=document["score"], document=document)
    if document["holds"]:
        module.exit_json(**result)
    score = ", ".join("%s: %s" % pair for pair in sorted(document["score"].items()))
    text = "the audit does not hold (%s)" % score
    if params["warn_only"]:
        module.warn(text)
        module.exit_json(**result)
    module.fail_json(msg=text, status=document.get("status"), rc=answer.status, **result)


if __name__ == "__main__":
    main()
