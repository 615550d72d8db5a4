//! Answering on the loopback interface, where alone it is safe to answer whoever asks.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::connection::{CuttableListener, Scissors};

/// A port of 127.0.0.1 that is listened on.
#[derive(Debug)]
pub(crate) struct Port {
    address: SocketAddr,
    listener: TcpListener,
}

/// A router that answers at a port until it is told to stop or dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    address: SocketAddr,
    stopping: CancellationToken,
    aborting: CancellationToken,
    server: JoinHandle<io::Result<()>>,
}

impl Port {
    /// Takes a port, a free one for 0. An error names it.
    pub(crate) async fn bind(port: u16) -> io::Result<Self> {
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let naming =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {wanted}: {error}"));
        let listener = TcpListener::bind(wanted).await.map_err(naming)?;
        Ok(Self { address: listener.local_addr()?, listener })
    }

    pub(crate) fn endpoint(&self) -> String {
        endpoint(self.address)
    }

    /// Starts to answer.
    pub(crate) fn serve(self, router: Router) -> Serving {
        let Self { address, listener } = self;
        let router = router.into_make_service_with_connect_info::<Scissors>();
        let stopping = CancellationToken::new();
        let stopped = stopping.clone().cancelled_owned();
        let aborting = CancellationToken::new();
        let listener = CuttableListener(listener, aborting.clone());
        let server = axum::serve(listener, router).with_graceful_shutdown(stopped);
        Serving { address, stopping, aborting, server: tokio::spawn(async move { server.await }) }
    }
}

impl Serving {
    pub(crate) fn endpoint(&self) -> String {
        endpoint(self.address)
    }

    /// Stops, when the requests that are being answered are.
    pub(crate) async fn finish(mut self) {
        self.stopping.cancel();
        self.stopped().await;
    }

    /// Stops at once. What is being answered is cut.
    pub(crate) async fn abort(mut self) {
        self.aborting.cancel();
        self.server.abort();
        self.stopped().await;
    }

    async fn stopped(&mut self) {
        match (&mut self.server).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "the simulator's listener failed"),
            Err(error) if error.is_cancelled() => {}
            Err(error) => warn!(%error, "the simulator's task failed"),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.aborting.cancel();
        self.server.abort();
    }
}

fn endpoint(address: SocketAddr) -> String {
    format!("http://{address}")
}
