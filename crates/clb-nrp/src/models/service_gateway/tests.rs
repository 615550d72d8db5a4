use super::*;
use proptest::prelude::*;
use serde_json::json;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn address(text: &str, services: &[&str]) -> Address {
    Address { address: ip(text), services: services.iter().copied().collect() }
}

#[test]
fn an_update_of_services_is_written_exactly() {
    let base = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network";
    let pool: ResourceId = format!("{base}/loadBalancers/a/backendAddressPools/a").parse().unwrap();
    let network: ResourceId = format!("{base}/virtualNetworks/v").parse().unwrap();
    let cleared = ServiceProperties {
        public_nat_gateway_id: Patch::Clear,
        is_default: Some(false),
        ..Default::default()
    };
    let update = UpdateServices {
        action: UpdateAction::PartialUpdate,
        service_requests: vec![
            ServiceRequest::put(GatewayService::inbound("a", vec![BackendPool::new(&pool, &network)])),
            ServiceRequest::put(GatewayService::inbound("b", vec![])),
            ServiceRequest::put(GatewayService { name: "c".into(), properties: Some(cleared) }),
            ServiceRequest::delete("d"),
        ],
    };
    let written = concat!(
        r#"{"action":"PartialUpdate","serviceRequests":["#,
        r#"{"isDelete":false,"service":{"name":"a","properties":{"serviceType":"Inbound","loadBalancerBackendPools":[{"#,
        r#""id":"/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/a/backendAddressPools/a","#,
        r#""name":"a","properties":{"virtualNetwork":{"#,
        r#""id":"/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/v"}}}]}}},"#,
        r#"{"isDelete":false,"service":{"name":"b","properties":{"serviceType":"Inbound","loadBalancerBackendPools":[]}}},"#,
        r#"{"isDelete":false,"service":{"name":"c","properties":{"isDefault":false,"publicNatGatewayId":null}}},"#,
        r#"{"isDelete":true,"service":{"name":"d"}}]}"#,
    );
    assert_eq!(serde_json::to_string(&update).unwrap(), written);
    assert_eq!(serde_json::from_str::<UpdateServices>(written).unwrap(), update);
}

#[test]
fn an_update_of_locations_is_written_exactly() {
    let update = UpdateAddressLocations {
        action: UpdateAction::PartialUpdate,
        address_locations: vec![
            AddressLocationUpdate {
                address_location: ip("10.0.0.4"),
                address_update_action: UpdateAction::FullUpdate,
                addresses: vec![address("10.1.0.5", &["a", "b"]), address("10.1.0.6", &[])],
            },
            AddressLocationUpdate {
                address_location: ip("fd00:0:0::1"),
                address_update_action: UpdateAction::PartialUpdate,
                addresses: vec![],
            },
        ],
    };
    let written = concat!(
        r#"{"action":"PartialUpdate","addressLocations":["#,
        r#"{"addressLocation":"10.0.0.4","addressUpdateAction":"FullUpdate","addresses":["#,
        r#"{"address":"10.1.0.5","services":["a","b"]},{"address":"10.1.0.6","services":[]}]},"#,
        r#"{"addressLocation":"fd00::1","addressUpdateAction":"PartialUpdate","addresses":[]}]}"#,
    );
    assert_eq!(serde_json::to_string(&update).unwrap(), written);
    assert_eq!(serde_json::from_str::<UpdateAddressLocations>(written).unwrap(), update);
}

#[test]
fn the_published_spelling_of_an_update_of_services_is_read() {
    let published = json!({
        "Action": "fullupdate",
        "ServiceRequests": [
            {"IsDelete": "False", "Service": {"Name": "a", "Properties": {
                "ServiceType": "inboundOutbound", "IsDefault": "True", "PublicNatGatewayId": "/n",
                "LoadBalancerBackendPools": [{"Id": "/p", "Name": "p", "Properties": {"VirtualNetwork": {"Id": "/v"}}}]
            }}},
            null,
            {"isDelete": "true", "Service": {"Name": "b", "Properties": null}}
        ]
    });
    let pool = BackendPool {
        id: Some("/p".into()),
        name: Some("p".into()),
        properties: BackendPoolProperties {
            virtual_network: Some(SubResource { id: Some("/v".into()), ..Default::default() }),
        },
    };
    let properties = ServiceProperties {
        service_type: Some(ServiceType::InboundOutbound),
        is_default: Some(true),
        load_balancer_backend_pools: Some(vec![pool]),
        public_nat_gateway_id: Patch::Set("/n".into()),
    };
    assert_eq!(
        serde_json::from_value::<UpdateServices>(published).unwrap(),
        UpdateServices {
            action: UpdateAction::FullUpdate,
            service_requests: vec![
                ServiceRequest::put(GatewayService { name: "a".into(), properties: Some(properties) }),
                ServiceRequest::delete("b"),
            ],
        }
    );
}

#[test]
fn sparse_services_are_read() {
    let service = |text: &str| serde_json::from_str::<GatewayService>(text).unwrap();
    let empty = GatewayService { name: String::new(), properties: None };
    assert_eq!(service("{}"), empty);
    assert_eq!(service(r#"{"name":null,"properties":null,"etag":"x"}"#), empty);
    let nulls =
        r#"{"name":"a","properties":{"serviceType":null,"isDefault":null,"loadBalancerBackendPools":null}}"#;
    assert_eq!(
        service(nulls),
        GatewayService { name: "a".into(), properties: Some(ServiceProperties::default()) }
    );
    let odd = r#"{"name":"a","properties":{"isDefault":"perhaps"}}"#;
    assert!(serde_json::from_str::<GatewayService>(odd).is_err());
}

fn locations(row: serde_json::Value) -> Vec<AddressLocation> {
    serde_json::from_value::<AddressLocationRow>(row).unwrap().into_locations()
}

#[test]
fn every_spelling_of_a_location_is_read() {
    let expected =
        vec![AddressLocation { location: ip("10.0.0.4"), addresses: vec![address("10.1.0.5", &["a", "b"])] }];
    let plain = json!({"addressLocation": "10.0.0.4", "addresses": [{"address": "10.1.0.5", "services": ["a", "b"]}]});
    let published = json!({"AddressLocation": "10.0.0.4", "Addresses": [{"Address": "10.1.0.5", "Services": ["a", "b"]}]});
    assert_eq!(locations(plain.clone()), expected);
    assert_eq!(locations(published.clone()), expected);
    assert_eq!(locations(json!({"AddressLocations": [published, null]})), expected);
    assert_eq!(locations(json!({"addressLocations": [plain]})), expected);
}

#[test]
fn what_stands_for_nothing_is_left_out() {
    let mixed = json!({"addressLocation": "10.0.0.4", "addresses": [
        null,
        {"address": "10.1.0.5", "services": []},
        {"address": "10.1.0.6", "services": null},
        {"address": "10.1.0.7"},
        {"address": "10.1.0.300", "services": ["a"]},
        {"services": ["a"]},
        {"address": "10.1.0.8", "services": [null, "a"]}
    ]});
    assert_eq!(
        locations(mixed),
        [AddressLocation { location: ip("10.0.0.4"), addresses: vec![address("10.1.0.8", &["a"])] }]
    );
    for nothing in [
        json!({}),
        json!({"addressLocation": "10.0.0.4"}),
        json!({"addressLocation": "10.0.0.4", "addresses": null}),
        json!({"addressLocation": null, "addresses": [{"address": "10.1.0.8", "services": ["a"]}]}),
        json!({"AddressLocations": null}),
    ] {
        assert_eq!(locations(nothing.clone()), [], "{nothing}");
    }
}

fn any_action() -> impl Strategy<Value = UpdateAction> {
    prop_oneof![Just(UpdateAction::FullUpdate), Just(UpdateAction::PartialUpdate)]
}

fn any_service() -> impl Strategy<Value = GatewayService> {
    let gateway = prop_oneof![Just(Patch::Keep), Just(Patch::Clear), "/[a-z]{1,9}".prop_map(Patch::Set)];
    let pool = prop::option::of("/[a-z]{1,9}").prop_map(|id| BackendPool {
        id,
        name: None,
        properties: BackendPoolProperties::default(),
    });
    let kind = prop_oneof![
        Just(ServiceType::Inbound),
        Just(ServiceType::Outbound),
        Just(ServiceType::InboundOutbound)
    ];
    let properties = (
        prop::option::of(kind),
        prop::option::of(any::<bool>()),
        prop::option::of(prop::collection::vec(pool, 0..3)),
        gateway,
    );
    let properties =
        properties.prop_map(|(service_type, is_default, load_balancer_backend_pools, gateway)| {
            ServiceProperties {
                service_type,
                is_default,
                load_balancer_backend_pools,
                public_nat_gateway_id: gateway,
            }
        });
    ("\\PC{0,20}", prop::option::of(properties))
        .prop_map(|(name, properties)| GatewayService { name, properties })
}

fn any_location() -> impl Strategy<Value = AddressLocationUpdate> {
    let address = (any::<IpAddr>(), prop::collection::vec("\\PC{0,12}", 0..3))
        .prop_map(|(address, services)| Address { address, services: services.into_iter().collect() });
    (any::<IpAddr>(), any_action(), prop::collection::vec(address, 0..4)).prop_map(
        |(address_location, address_update_action, addresses)| AddressLocationUpdate {
            address_location,
            address_update_action,
            addresses,
        },
    )
}

proptest! {
    #[test]
    fn updates_of_services_are_read_back_as_written(
        action in any_action(),
        services in prop::collection::vec((any::<bool>(), any_service()), 0..5),
    ) {
        let service_requests =
            services.into_iter().map(|(is_delete, service)| ServiceRequest { is_delete, service }).collect();
        let update = UpdateServices { action, service_requests };
        let text = serde_json::to_string(&update).unwrap();
        prop_assert_eq!(serde_json::from_str::<UpdateServices>(&text).unwrap(), update);
    }

    #[test]
    fn updates_of_locations_are_read_back_as_written_and_hold_no_null(
        action in any_action(),
        address_locations in prop::collection::vec(any_location(), 0..5),
    ) {
        let update = UpdateAddressLocations { action, address_locations };
        let value = serde_json::to_value(&update).unwrap();
        prop_assert!(!value["addressLocations"].is_null());
        prop_assert_eq!(serde_json::from_value::<UpdateAddressLocations>(value).unwrap(), update);
    }
}
