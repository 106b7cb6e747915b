#!/usr/bin/python
"""Compares a machine and its guests with a model."""

DOCUMENTATION = r"""
module: verify
short_description: Compare a machine and the insides of its guests with a model
description:
  - Runs C(penstock verify), which reads the kernel and looks from inside each guest, and fails unless every verdict holds.
  - What could not be seen does not hold.
version_added: 0.1.0
author: The Penstock developers (@penstock)
options:
  timeout:
    description: How long to wait for a link to come up and for a frame to arrive, for example V(10s).
    type: str
  load:
    description: Also test each C(max_tx_rate); the VF sends at full speed for a second.
    type: bool
    default: false
  warn_only:
    description: Warn instead of failing when a verdict does not hold.
    type: bool
    default: false
extends_documentation_fragment:
  - penstock.machine.penstock
  - penstock.machine.penstock.model
attributes:
  check_mode:
    support: full
    description: Nothing is changed.
"""

EXAMPLES = r"""
- name: Prove that the machine is as the model says
  penstock.machine.verify:
    src: /etc/penstock/node.yaml
"""

RETURN = r"""
holds:
  description: Whether every verdict holds.
  returned: always
  type: bool
failing:
  description: The verdicts that do not hold, one line each.
  returned: always
  type: list
  elements: str
document:
  description: The document of C(verify), with all verdicts.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.penstock.machine.plugins.module_utils.penstock import (
    COMMON,
    DOES_NOT_HOLD,
    HOLDS,
    MODEL,
    Penstock,
    model_file,
)

# So many are named in a message; all are in the result.
NAMED = 10


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON,
            **MODEL,
            timeout=dict(type="str"),
            load=dict(type="bool", default=False),
            warn_only=dict(type="bool", default=False),
        ),
        mutually_exclusive=[("src", "content")],
        required_one_of=[("src", "content")],
        supports_check_mode=True,
    )
    penstock = Penstock(module)
    params = module.params
    words = ["--timeout=%s" % params["timeout"]] if params["timeout"] else []
    words += ["--load"] if params["load"] else []
    with model_file(penstock) as model:
        answer = penstock.run("verify", *(model + words))
    document = answer.document
    if answer.status not in (HOLDS, DOES_NOT_HOLD) or "verdicts" not in document:
        penstock.fail(answer)
    failing = [line(verdict) for verdict in document["verdicts"] if not passes(verdict)]
    result = dict(changed=False, holds=document["holds"], failing=failing, document=document)
    if document["holds"]:
        module.exit_json(**result)
    rest = len(failing) - NAMED
    text = "; ".join(failing[:NAMED]) + ("; and %d more" % rest if rest > 0 else "")
    text = "the machine is not as the model says: " + text
    if params["warn_only"]:
        module.warn(text)
        module.exit_json(**result)
    module.fail_json(msg=text, status=document.get("status"), rc=answer.status, **result)


def passes(verdict):
    """Whether a verdict holds, as C(penstock verify) counts it."""
    if verdict["outcome"] == "unsupported":
        return verdict["best_effort"] or verdict["emulated"]
    return verdict["outcome"] == "pass" or (verdict["outcome"] == "unknown" and verdict["out_of_sight"])


def line(verdict):
    subject = verdict["subject"]
    if isinstance(subject, dict):
        (kind, subject), = subject.items()
        if kind == "path":
            subject = "from %s to %s" % (subject["from"], subject["to"])
    return "%s, %s: wanted %s, seen %s (%s)" % (
        subject,
        verdict["attribute"],
        verdict["wanted"],
        verdict["seen"],
        verdict["outcome"],
    )


if __name__ == "__main__":
    main()
