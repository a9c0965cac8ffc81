//! The admin port, from its bind to the end of the drain.

use std::net::SocketAddr;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::admin;
use crate::config::ServeConfig;
use crate::grpc::health::Readiness;
use crate::tasks::Supervisor;
use crate::telemetry::meter::Exposition;

/// See the module.
pub(super) struct AdminPort {
    listener: TcpListener,
    pub(super) address: SocketAddr,
}

impl AdminPort {
    /// Binds the port, if one was asked for.
    pub(super) async fn bind(config: &ServeConfig) -> anyhow::Result<Option<Self>> {
        let Some(at) = &config.admin_listen else { return Ok(None) };
        let listener = TcpListener::bind(at.as_str()).await;
        let listener = listener.with_context(|| format!("cannot listen on {at} (--admin-listen)"))?;
        let address = listener.local_addr()?;
        Ok(Some(Self { listener, address }))
    }

    /// Begins to answer, as a vital part of the process. The port has a supervisor of its own, because it answers until
    /// the drain is over.
    pub(super) fn start(
        self,
        readiness: watch::Receiver<Readiness>,
        metrics: Exposition,
        process: &Supervisor,
    ) -> Supervisor {
        let own = Supervisor::new();
        let guard = process.guard("admin port");
        let serving = admin::serve(self.listener, readiness, metrics, own.clone(), own.stop());
        own.spawn(async move {
            let _guard = guard;
            serving.await;
        });
        own
    }
}
