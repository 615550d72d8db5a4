//! Any bytes at all as what Azure answers. Shared with the fuzz target.

use std::fmt::Debug;

use clb_nrp::models::{
    BackendAddressPool, GatewayService, LoadBalancer, NatGateway, PublicIp, ServiceGateway,
    UpdateAddressLocations, UpdateServices,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads `bytes` as each model. What can be read is written, and read back as the same.
pub(crate) fn every_model(bytes: &[u8]) {
    one::<PublicIp>(bytes);
    one::<LoadBalancer>(bytes);
    one::<BackendAddressPool>(bytes);
    one::<NatGateway>(bytes);
    one::<ServiceGateway>(bytes);
    one::<GatewayService>(bytes);
    one::<UpdateServices>(bytes);
    one::<UpdateAddressLocations>(bytes);
}

fn one<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(bytes) else { return };
    let written = serde_json::to_vec(&read).expect("what was read can be written");
    let again = serde_json::from_slice::<T>(&written).expect("what was written can be read");
    // JSON's fractions are not exact, and Azure has none here.
    if serde_json::from_slice(bytes).is_ok_and(|value| !has_fraction(&value)) {
        assert_eq!(again, read);
    }
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_fraction),
        Value::Object(fields) => fields.values().any(has_fraction),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}
