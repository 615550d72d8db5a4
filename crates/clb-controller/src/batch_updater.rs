//! Batches on the ServiceGateway.

use std::sync::Arc;

use clb_difftracker::{
    AddressUpdate, AddressesUpdate, GatewayRequest, LocationUpdate, Outcome, RegistrationUpdate,
    ServiceUpdate, Success,
};
use clb_nrp::models::{
    Address, AddressLocationUpdate, BackendPool, GatewayService, ServiceRequest, UpdateAction,
    UpdateAddressLocations, UpdateServices,
};
use clb_nrp::{CallContext, NrpApi, NrpConfig, Result};

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
            GatewayRequest::UpdateServices(updates) => match self.services_body(updates) {
                Ok(body) => self.nrp.update_services(call, &body).await.map(|()| Success::Done),
                Err(error) => Err(error),
            },
            GatewayRequest::UpdateAddressLocations(updates) => {
                let body = address_locations_body(updates);
                self.nrp.update_address_locations(call, &body).await.map(|()| Success::Done)
            }
        })
    }

    fn services_body(&self, updates: &[ServiceUpdate]) -> Result<UpdateServices> {
        let service_requests =
            updates.iter().map(|update| self.service_request(update)).collect::<Result<_>>()?;
        Ok(UpdateServices { action: UpdateAction::PartialUpdate, service_requests })
    }

    fn service_request(&self, update: &ServiceUpdate) -> Result<ServiceRequest> {
        let name = update.service.as_str();
        Ok(match update.registration {
            RegistrationUpdate::RegisterInbound => {
                let pool = self.config.backend_pool_id(name, name)?;
                let pools = vec![BackendPool::new(&pool, self.config.virtual_network())];
                ServiceRequest::put(GatewayService::inbound(name, pools))
            }
            RegistrationUpdate::ClearPool => ServiceRequest::put(GatewayService::inbound(name, Vec::new())),
            RegistrationUpdate::RegisterOutbound => {
                let nat_gateway = self.config.nat_gateway_id(name)?;
                ServiceRequest::put(GatewayService::outbound(name, Some(&nat_gateway)))
            }
            RegistrationUpdate::ClearNatGateway => ServiceRequest::put(GatewayService::outbound(name, None)),
            RegistrationUpdate::Unregister => ServiceRequest::delete(name),
        })
    }
}

/// The body of an `updateAddressLocations` that makes these updates and leaves everything else as it is.
#[must_use]
pub fn address_locations_body(updates: &[LocationUpdate]) -> UpdateAddressLocations {
    UpdateAddressLocations {
        action: UpdateAction::PartialUpdate,
        address_locations: updates.iter().map(location_update).collect(),
    }
}

fn location_update(update: &LocationUpdate) -> AddressLocationUpdate {
    let (address_update_action, addresses) = match &update.addresses {
        AddressesUpdate::Replace(addresses) => {
            (UpdateAction::FullUpdate, addresses.iter().map(address).collect())
        }
        AddressesUpdate::Merge(addresses) => {
            (UpdateAction::PartialUpdate, addresses.iter().map(address).collect())
        }
        AddressesUpdate::Remove => (UpdateAction::PartialUpdate, Vec::new()),
    };
    AddressLocationUpdate { address_location: update.location.get(), address_update_action, addresses }
}

fn address(update: &AddressUpdate) -> Address {
    let services = update.services.iter().map(|service| service.as_str().to_owned()).collect();
    Address { address: update.address.get(), services }
}
