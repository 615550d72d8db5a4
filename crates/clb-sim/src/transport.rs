//! From a client of this workspace to the simulation without a socket.

use std::io;

use async_trait::async_trait;
use clb_arm::{Transport, TransportError};

use crate::front::Ending;
use crate::server::Simulation;

/// Leads a client's requests straight to a [`Simulation`]. It waits on tokio's clock only.
#[derive(Clone, Debug)]
pub struct SimulatedTransport(Simulation);

impl SimulatedTransport {
    pub(crate) fn new(simulation: Simulation) -> Self {
        Self(simulation)
    }
}

#[async_trait]
impl Transport for SimulatedTransport {
    async fn send(&self, request: http::Request<Vec<u8>>) -> Result<http::Response<Vec<u8>>, TransportError> {
        let uri = request.uri();
        let base = match (uri.scheme_str(), uri.authority()) {
            (Some(scheme), Some(authority)) => format!("{scheme}://{authority}"),
            (None, _) | (_, None) => String::new(),
        };
        match self.0.handle(&request, &base).await {
            Ending::Answer(response) => Ok(response),
            Ending::Truncated(..) | Ending::Cut => {
                Err(TransportError::MaybeSent(io::Error::from(io::ErrorKind::ConnectionReset).into()))
            }
        }
    }
}
