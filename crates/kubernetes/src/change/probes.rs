//! What proves that a node still works after a change: each time over a connection that did not exist before.

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::Api;

use crate::{
    client::{ApiError, ClientSettings, answer, connect},
    machine::{UtcTime, manifests::NODE_LEASES},
};

/// Asks the API server, by a client that is made for this: whether it answers, kubelet has renewed the node's Lease after `applied`, and
/// the Node is ready. Both times are of this machine's clock: kubelet writes the Lease's.
///
/// # Errors
///
/// What does not hold, in a sentence.
pub async fn probe(settings: &ClientSettings, node: &str, applied: UtcTime) -> Result<(), String> {
    let connection = connect(settings).await.map_err(|error| penstock_host::chain(&error))?;
    let server = format!("the API server at {}:{}", connection.host, connection.port);
    let failed = |error: ApiError| format!("asked {server} over a new connection: {error}");
    let leases: Api<Lease> = Api::namespaced(connection.client.clone(), NODE_LEASES);
    let lease = answer(leases.get(node)).await.map_err(failed)?;
    let renewed = lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0.as_second().max(0) as u64);
    if renewed.is_none_or(|renewed| renewed <= applied.0) {
        return Err(format!(
            "kubelet has not renewed the Lease of {node} since the change was applied at {applied}"
        ));
    }
    let nodes: Api<Node> = Api::all(connection.client);
    let found = answer(nodes.get(node)).await.map_err(failed)?;
    let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
    match conditions.iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => {
            let why = ready.message.as_deref().or(ready.reason.as_deref()).unwrap_or("no reason is given");
            Err(format!("the Node {node} is not ready: {why}"))
        }
        None => Err(format!("the Node {node} does not say whether it is ready")),
    }
}
