//! Kubelet hears of devices' health (`dra-health/v1alpha1/api.proto`): all of them at once, when something changes and before what it knows
//! is too old.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{sync::mpsc, sync::watch, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::{
    health::{DeviceCondition, HealthReport},
    protocol::dra_health_v1alpha1::{
        DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
        dra_resource_health_server::{DraResourceHealth, DraResourceHealthServer},
    },
};

/// Kubelet takes a device's health for unknown when it has not heard of it for so long, in seconds.
const TIMEOUT: i64 = 30;
/// So often it is told anew.
const REFRESH: Duration = Duration::from_secs(10);
/// A message has no more bytes.
const LONGEST: usize = 1024;

/// The service.
#[derive(Clone, Debug)]
pub struct HealthStream {
    pool: String,
    health: watch::Receiver<Arc<HealthReport>>,
    shutdown: watch::Receiver<bool>,
}

impl HealthStream {
    /// Of the devices of a pool, until `shutdown` says true.
    pub fn new(
        pool: &str,
        health: watch::Receiver<Arc<HealthReport>>,
        shutdown: watch::Receiver<bool>,
    ) -> HealthStream {
        HealthStream { pool: pool.to_owned(), health, shutdown }
    }

    /// The service, to be served.
    pub fn service(self) -> DraResourceHealthServer<HealthStream> {
        DraResourceHealthServer::new(self)
    }

    async fn tell(mut self, kubelet: mpsc::Sender<Result<NodeWatchResourcesResponse, Status>>) {
        loop {
            let report = self.health.borrow_and_update().clone();
            if kubelet.send(Ok(response(&self.pool, &report, SystemTime::now()))).await.is_err() {
                return;
            }
            tokio::select! {
                // Kubelet hung up.
                () = kubelet.closed() => return,
                _ = self.shutdown.wait_for(|over| *over) => return,
                changed = timeout(REFRESH, self.health.changed()) => {
                    // Nobody watches the devices any more: what is known grows old, as it should.
                    if matches!(changed, Ok(Err(_))) {
                        return;
                    }
                }
            }
        }
    }
}

fn response(pool: &str, report: &HealthReport, now: SystemTime) -> NodeWatchResourcesResponse {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let device =
        |(name, health): (&crate::identity::DeviceName, &crate::health::DeviceHealth)| DeviceHealth {
            device: Some(DeviceIdentifier { pool_name: pool.to_owned(), device_name: name.to_string() }),
            health: match health.condition {
                DeviceCondition::Healthy => HealthStatus::Healthy,
                DeviceCondition::Unhealthy => HealthStatus::Unhealthy,
                DeviceCondition::Unknown => HealthStatus::Unknown,
            }
            .into(),
            last_updated_time: i64::try_from(now).unwrap_or(i64::MAX),
            health_check_timeout_seconds: TIMEOUT,
            message: clipped(&health.message),
        };
    NodeWatchResourcesResponse { devices: report.iter().map(device).collect() }
}

fn clipped(text: &str) -> String {
    let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    text[..end].to_owned()
}

#[tonic::async_trait]
impl DraResourceHealth for HealthStream {
    type NodeWatchResourcesStream = ReceiverStream<Result<NodeWatchResourcesResponse, Status>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        // A peer that does not read holds up nobody: each has a task of its own, which waits.
        let (send, receive) = mpsc::channel(1);
        tokio::spawn(self.clone().tell(send));
        Ok(Response::new(ReceiverStream::new(receive)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_between_characters() {
        assert_eq!(clipped("short"), "short");
        assert_eq!(clipped(&"ä".repeat(600)).len(), 1024);
        assert_eq!(clipped(&format!("a{}", "ä".repeat(600))).len(), 1023);
    }
}
