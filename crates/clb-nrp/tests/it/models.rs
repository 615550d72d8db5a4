//! Properties of the models: whatever is read is written back as the same.

use clb_nrp::models::{NatGateway, PublicIp, ServiceGateway};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::decode::every_model;

/// Names that the models know, in both spellings, and some that they do not.
const NAMES: [&str; 24] = [
    "id",
    "name",
    "Name",
    "etag",
    "location",
    "tags",
    "sku",
    "properties",
    "Properties",
    "tier",
    "services",
    "Services",
    "address",
    "addresses",
    "addressLocations",
    "AddressLocation",
    "action",
    "serviceRequests",
    "service",
    "isDelete",
    "serviceType",
    "publicNatGatewayId",
    "serviceGateway",
    "zones",
];

fn json() -> impl Strategy<Value = Value> {
    let texts = ["", "10.0.0.1", "fd00::1", "True", "FullUpdate", "Inbound", "Succeeded", "W/1"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i32>().prop_map(Value::from),
        prop::sample::select(texts.to_vec()).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        let names = prop::sample::select(NAMES.to_vec()).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(names, inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Fields that no model knows.
fn unknown() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("x[a-zA-Z]{1,8}", json(), 0..4)
        .prop_map(|fields| fields.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn what_can_be_read_is_written_and_read_back(value in json()) {
        every_model(value.to_string().as_bytes());
    }
}

/// `read` as the model `T`, written back.
fn rewritten<T: Serialize + DeserializeOwned>(read: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(read.clone()).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn what_is_not_known_is_kept(outer in unknown(), inner in unknown()) {
        let mut read = json!({"id": "/r", "tags": {"a": "b"}, "properties": inner});
        read.as_object_mut().unwrap().extend(outer);
        prop_assert_eq!(&rewritten::<ServiceGateway>(&read), &read);
        prop_assert_eq!(&rewritten::<PublicIp>(&read), &read);
        // These two say so when they have none.
        read["properties"]["publicIpAddresses"] = json!([]);
        read["properties"]["publicIpAddressesV6"] = json!([]);
        prop_assert_eq!(&rewritten::<NatGateway>(&read), &read);
    }
}

#[test]
fn every_saved_case_of_the_fuzzer_is_written_and_read_back() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/decode");
    let cases: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!cases.is_empty(), "{folder} is empty");
    for case in cases {
        println!("{}", case.display());
        every_model(&std::fs::read(case).unwrap());
    }
}
