//! What the gateway's own refusals mean, from an answer on the wire.

use std::sync::Arc;

use async_trait::async_trait;
use clb_arm::http::{Request, Response};
use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint, Transport, TransportError};
use clb_controller::LocationAndNrpServiceBatchUpdater;
use clb_difftracker::{
    FailureKind, GatewayRequest, Ip, LocationUpdate, Outcome, RegistrationUpdate, ServiceId, ServiceUpdate,
};
use clb_nrp::{CallContext, NrpClient};

use crate::driving::config;

/// Gives everything the same answer.
#[derive(Debug)]
struct Always(u16, &'static str);

#[async_trait]
impl Transport for Always {
    async fn send(&self, _: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, TransportError> {
        let body = format!(r#"{{"error":{{"code":"{}","message":"no"}}}}"#, self.1);
        Ok(Response::builder().status(self.0).body(body.into_bytes()).unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_not_found_says_nothing_of_what_the_request_names() {
    let location = Ip::from(std::net::IpAddr::from([192, 168, 0, 1]));
    let requests = [
        GatewayRequest::UpdateServices(vec![ServiceUpdate {
            service: ServiceId::new("00000000-0000-0000-0000-000000000001").unwrap(),
            registration: RegistrationUpdate::Unregister,
        }]),
        GatewayRequest::UpdateAddressLocations(vec![LocationUpdate {
            location,
            addresses: clb_difftracker::AddressesUpdate::Remove,
        }]),
    ];
    for (status, code, expected) in [
        (404, "ResourceNotFound", FailureKind::Transient),
        (404, "ResourceGroupNotFound", FailureKind::Transient),
        // The gateway is there, and what the request refers to is not.
        (400, "InvalidResourceReference", FailureKind::NotFound),
    ] {
        let endpoint = Endpoint::new(&Cloud::Public).unwrap();
        let arm = ArmClient::builder(endpoint, Anonymous, Always(status, code)).build();
        let nrp = Arc::new(NrpClient::new(arm, config()));
        let updater = LocationAndNrpServiceBatchUpdater::new(nrp, config());
        for request in &requests {
            match updater.update(&CallContext::random(), request).await {
                Outcome::Failed(failure) => assert_eq!(failure.kind, expected, "{status} {code}"),
                Outcome::Succeeded(_) | Outcome::Unknown(_) => panic!("{status} {code} is a refusal"),
            }
        }
    }
}
