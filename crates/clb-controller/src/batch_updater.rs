//! Batches on the ServiceGateway.

use std::collections::HashMap;
use std::sync::Arc;

use clb_difftracker::{
    AddressUpdate, AddressesUpdate, GatewayRequest, LocationUpdate, Outcome, RegistrationUpdate, ServiceId,
    ServiceUpdate, Success,
};
use clb_nrp::models::{
    Address, AddressLocationUpdate, BackendPool, GatewayService, ServiceNames, ServiceRequest, UpdateAction,
    UpdateAddressLocations, UpdateServices,
};
use clb_nrp::{CallContext, NrpApi, NrpConfig, Result};
use foldhash::fast::FixedState;

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
    let mut names = Names::default();
    UpdateAddressLocations {
        action: UpdateAction::PartialUpdate,
        address_locations: updates.iter().map(|update| location_update(update, &mut names)).collect(),
    }
}

fn location_update(update: &LocationUpdate, names: &mut Names) -> AddressLocationUpdate {
    let mut addresses = |addresses: &[AddressUpdate]| {
        let address = |update: &AddressUpdate| Address {
            address: update.address.get(),
            services: names.of(&update.services),
        };
        addresses.iter().map(address).collect()
    };
    let (address_update_action, addresses) = match &update.addresses {
        AddressesUpdate::Replace(replaced) => (UpdateAction::FullUpdate, addresses(replaced)),
        AddressesUpdate::Merge(merged) => (UpdateAction::PartialUpdate, addresses(merged)),
        AddressesUpdate::Remove => (UpdateAction::PartialUpdate, Vec::new()),
    };
    AddressLocationUpdate { address_location: update.location.get(), address_update_action, addresses }
}

/// The lists of names that stand in a body, by where the tracker keeps them: it shares them between addresses, and so does
/// the body.
#[derive(Default)]
struct Names(HashMap<(usize, usize), ServiceNames, FixedState>);

impl Names {
    fn of(&mut self, services: &[ServiceId]) -> ServiceNames {
        let place = (services.as_ptr().addr(), services.len());
        self.0.entry(place).or_insert_with(|| services.iter().map(ServiceId::as_str).collect()).clone()
    }
}
