//! Batches on the ServiceGateway.

use std::sync::Arc;

use clb_difftracker::{GatewayRequest, Outcome, Success};
pub use clb_nrp::tracker::update_address_locations as address_locations_body;
use clb_nrp::tracker::{update_address_locations, update_services};
use clb_nrp::{CallContext, NrpApi, NrpConfig};

use crate::outcome::gateway_outcome;
use crate::reading::read_gateway;

/// Performs what the tracker gives as one batch: registrations of many services, or addresses of many locations.
///
/// The tracker gives one at a time, and gives the next one, with everything that has accumulated, when it has heard how
/// this one went. NRP takes a batch as a whole or refuses it as a whole.
#[derive(Clone)]
pub struct LocationAndNrpServiceBatchUpdater {
    nrp: Arc<dyn NrpApi>,
    config: NrpConfig,
}

impl LocationAndNrpServiceBatchUpdater {
    /// An updater of the gateway that `nrp` talks to and `config` names.
    pub fn new(nrp: Arc<dyn NrpApi>, config: NrpConfig) -> Self {
        Self { nrp, config }
    }

    /// Performs one batch to its end.
    pub async fn update(&self, call: &CallContext, request: &GatewayRequest) -> Outcome {
        gateway_outcome(match request {
            GatewayRequest::Read => read_gateway(&*self.nrp, call).await.map(Success::Gateway),
            GatewayRequest::UpdateServices(updates) => match update_services(&self.config, updates) {
                Ok(body) => self.nrp.update_services(call, &body).await.map(|()| Success::Done),
                Err(error) => Err(error),
            },
            GatewayRequest::UpdateAddressLocations(updates) => {
                let body = update_address_locations(updates);
                self.nrp.update_address_locations(call, &body).await.map(|()| Success::Done)
            }
        })
    }
}
