//! What a cluster has to allow the agent and the controller for a roll-out, and nothing more.

use serde_json::{Value, json};

use super::{GROUP, VERSION};

/// The name of the controller's service account, role and Lease.
pub const CONTROLLER: &str = "penstock-controller";

/// The name of the agent's service account.
const AGENT: &str = "penstock-kubernetes";

/// Rules for the agent's ClusterRole. [`policies`] fence what they cannot: a node writes its own object alone.
fn agent_rules() -> Vec<Value> {
    vec![
        json!({"apiGroups": [GROUP], "resources": ["sriovmachines"], "verbs": ["list", "watch"]}),
        json!({"apiGroups": [GROUP], "resources": ["sriovnodes"], "verbs": ["create", "get", "list", "watch"]}),
        json!({"apiGroups": [GROUP], "resources": ["sriovnodes/status"], "verbs": ["patch"]}),
        json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}),
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}),
    ]
}

/// Everything for roll-outs, as objects to be applied: the kinds, and what agents and the controller in `namespace` may do.
pub fn objects(namespace: &str) -> Vec<Value> {
    let mut objects = super::crds();
    objects.extend(agent_objects(namespace));
    objects.extend(controller_objects(namespace));
    objects.extend(policies(namespace));
    objects
}

/// What the agent's service account may do for roll-outs, as a role of its own.
fn agent_objects(namespace: &str) -> Vec<Value> {
    let name = "penstock-kubernetes-rollout";
    let subjects = json!([{"kind": "ServiceAccount", "name": AGENT, "namespace": namespace}]);
    vec![
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": agent_rules()}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}, "subjects": subjects}),
    ]
}

/// All that the controller needs: its service account, a ClusterRole, and a Role for its Lease.
fn controller_objects(namespace: &str) -> Vec<Value> {
    let labels = json!({"app.kubernetes.io/name": "penstock", "app.kubernetes.io/component": "controller"});
    let subjects = json!([{"kind": "ServiceAccount", "name": CONTROLLER, "namespace": namespace}]);
    let rules = [
        (GROUP, "sriovmachines", vec!["list", "watch"]),
        (GROUP, "sriovmachines/status", vec!["patch"]),
        (GROUP, "sriovnodes", vec!["list", "watch", "patch"]),
        // Patched where `drain.mode: node` cordons them.
        ("", "nodes", vec!["list", "watch", "patch"]),
        ("", "events", vec!["create"]),
        // Only while a node is drained: its pods, their claims, and the devices of its slices.
        ("", "pods", vec!["list"]),
        ("", "pods/eviction", vec!["create"]),
        ("resource.k8s.io", "resourceclaims", vec!["get", "list"]),
        ("resource.k8s.io", "resourceslices", vec!["list"]),
    ];
    let rules: Vec<Value> = rules
        .iter()
        .map(
            |(group, resource, verbs)| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}),
        )
        .collect();
    let lease = [
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}),
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [CONTROLLER], "verbs": ["get", "update"]}),
    ];
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": CONTROLLER, "namespace": namespace, "labels": labels}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": CONTROLLER, "labels": labels}, "rules": rules}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": CONTROLLER, "labels": labels},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CONTROLLER}, "subjects": subjects}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": CONTROLLER, "namespace": namespace, "labels": labels}, "rules": lease}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": CONTROLLER, "namespace": namespace, "labels": labels},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": CONTROLLER}, "subjects": subjects}),
    ]
}

/// A policy that fences agents: an agent, whose token is bound to its Node, writes the `SriovNode` of that node alone, and makes
/// one only without a spec, so that it cannot tell itself to begin.
fn policies(namespace: &str) -> Vec<Value> {
    let name = "sriovnodes.penstock.dev";
    // Empty for a token that is bound to no Node: with that nothing is written.
    let node = "request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')";
    let agent = format!("request.userInfo.username == 'system:serviceaccount:{namespace}:{AGENT}'");
    vec![
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [GROUP], "apiVersions": [VERSION], "operations": ["CREATE", "UPDATE", "DELETE"],
                "resources": ["sriovnodes", "sriovnodes/status"],
            }]},
            "matchConditions": [{"name": "is-an-agent", "expression": agent}],
            "variables": [
                {"name": "node", "expression": node},
                {"name": "object", "expression": "request.operation == 'DELETE' ? oldObject : object"},
            ],
            "validations": [
                {"expression": "variables.object.metadata.name == variables.node",
                    "messageExpression": "'an agent writes the SriovNode of the Node alone that its token is bound to: ' + (variables.node == '' ? 'none' : variables.node)"},
                {"expression": "request.operation != 'CREATE' || !has(object.spec) || (!has(object.spec.change) && !has(object.spec.withdrawn))",
                    "message": "an agent makes a SriovNode without a spec: what a node is told to do is the controller's"},
            ],
        }}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]}}),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_granted_by_a_wildcard() {
        for value in agent_objects("n").into_iter().chain(controller_objects("n")).chain(policies("n")) {
            assert!(!value.to_string().contains('*'), "{value}");
        }
    }

    #[test]
    fn an_agent_may_not_write_what_it_is_told_to_do() {
        for rule in agent_rules() {
            let writes = rule["verbs"]
                .as_array()
                .unwrap()
                .iter()
                .any(|verb| ["update", "patch"].contains(&verb.as_str().unwrap()));
            assert!(!writes || rule["resources"] == json!(["sriovnodes/status"]), "{rule}");
        }
    }
}
