//! What a cluster has to allow the agent and the controller for a roll-out, and nothing more.

use serde_json::{Value, json};

use super::{GROUP, VERSION};
use crate::identity::CORDONED;

/// The name of the controller's service account, role and Lease.
pub const CONTROLLER: &str = "penstock-controller";

/// The namespace of the Leases that kubelets renew, one for each node.
pub const NODE_LEASES: &str = "kube-node-lease";

/// The name of the agent's service account.
const AGENT: &str = "penstock-kubernetes";

/// Rules for the agent's ClusterRole. [`policies`] fence what they cannot: a node writes its own object alone.
fn agent_rules() -> Vec<Value> {
    vec![
        json!({"apiGroups": [GROUP], "resources": ["sriovmachines"], "verbs": ["list", "watch"]}),
        json!({"apiGroups": [GROUP], "resources": ["sriovnodes"], "verbs": ["create", "list", "watch"]}),
        json!({"apiGroups": [GROUP], "resources": ["sriovnodes/status"], "verbs": ["patch"]}),
        json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}),
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
    // Whether kubelet lives: of Leases in other namespaces agents have to know nothing.
    let leases = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}]);
    vec![
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": agent_rules()}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}, "subjects": subjects}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name, "namespace": NODE_LEASES}, "rules": leases}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name, "namespace": NODE_LEASES},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}, "subjects": subjects}),
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
        // Patched where `drain.mode: node` cordons them: a policy lets nothing else be written.
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

/// The policies that fence what roles cannot.
fn policies(namespace: &str) -> Vec<Value> {
    let account =
        |name: &str| format!("request.userInfo.username == 'system:serviceaccount:{namespace}:{name}'");
    [own_record(&account(AGENT)), cordons_alone(&account(CONTROLLER))].concat()
}

/// An agent, whose token is bound to its Node, writes the `SriovNode` of that node alone, and makes one only without a spec, so that it
/// cannot tell itself to begin.
fn own_record(agent: &str) -> Vec<Value> {
    // Empty for a token that is bound to no Node: with that nothing is written.
    let node = "request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')";
    policy(
        "sriovnodes.penstock.dev",
        json!({
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
        }),
    )
}

/// The controller cordons a Node, and says there for which change. What its role lets it write beside that, labels and taints among it, it does not.
fn cordons_alone(controller: &str) -> Vec<Value> {
    // Two maps are the same but for a key.
    let same_but = |now: &str, before: &str, key: &str| {
        format!(
            "variables.{now}.all(key, key == '{key}' || (key in variables.{before} && variables.{now}[key] == variables.{before}[key])) \
             && variables.{before}.all(key, key == '{key}' || key in variables.{now})"
        )
    };
    let others = ["labels", "finalizers", "ownerReferences"]
        .map(|field| format!("dyn(object).metadata.?{field} == dyn(oldObject).metadata.?{field}"));
    // A Node's spec has a type, and only what has none can be gone through key by key.
    policy(
        "nodes.penstock.dev",
        json!({
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"],
            }]},
            "matchConditions": [{"name": "is-the-controller", "expression": controller}],
            "variables": [
                {"name": "spec", "expression": "dyn(object).?spec.orValue({})"},
                {"name": "specBefore", "expression": "dyn(oldObject).?spec.orValue({})"},
                {"name": "annotations", "expression": "dyn(object).metadata.?annotations.orValue({})"},
                {"name": "annotationsBefore", "expression": "dyn(oldObject).metadata.?annotations.orValue({})"},
            ],
            "validations": [
                {"expression": same_but("spec", "specBefore", "unschedulable"),
                    "message": "the controller of roll-outs writes whether a Node takes pods, and nothing else of its spec"},
                {"expression": same_but("annotations", "annotationsBefore", CORDONED),
                    "message": format!("the controller of roll-outs writes no annotation of a Node but {CORDONED}")},
                {"expression": others.join(" && "),
                    "message": "the controller of roll-outs writes neither labels nor finalizers nor owners of a Node"},
            ],
        }),
    )
}

/// A policy and its binding, which denies what does not hold.
fn policy(name: &str, spec: Value) -> Vec<Value> {
    vec![
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]}}),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever grants more, or less, sees it in this file.
    #[test]
    fn what_is_granted_is_on_record() {
        let objects =
            [agent_objects("penstock"), controller_objects("penstock"), policies("penstock")].concat();
        let text: String = objects.iter().map(|object| format!("---\n{object:#}\n")).collect();
        let path =
            std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/manifests/rollout.yaml"));
        penstock_testkit::golden::compare(path, &text);
    }

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
