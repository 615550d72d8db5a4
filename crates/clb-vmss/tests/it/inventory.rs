use clb_vmss::models::{IpVersion, NetworkInterface, OrchestrationMode, ScaleSet, VirtualMachine};
use clb_vmss::{
    MachineState, NodeKind, NodeRecord, Power, ProviderId, ScaleSetKey, Snapshot, read_machine,
    read_scale_set,
};
use serde_json::{Value, json};

use crate::fake::{Fake, call, member, node, set};

fn scale_set(prefix: &str) -> ScaleSet {
    let profile = json!({"osProfile": {"computerNamePrefix": prefix}});
    serde_json::from_value(json!({"sku": {"capacity": 3}, "properties": {"virtualMachineProfile": profile}}))
        .unwrap()
}

fn machine(id: &ProviderId, properties: impl Into<Value>) -> VirtualMachine {
    let properties: Value = properties.into();
    serde_json::from_value(json!({"id": id.resource_id(), "properties": properties})).unwrap()
}

fn interface(id: &str, primary: bool, ips: &[(&str, bool)]) -> NetworkInterface {
    let ips: Vec<Value> = ips
        .iter()
        .map(|(ip, primary)| json!({"properties": {"privateIPAddress": ip, "primary": primary}}))
        .collect();
    serde_json::from_value(json!({"id": id, "properties": {"primary": primary, "ipConfigurations": ips}}))
        .unwrap()
}

#[test]
fn what_a_resource_does_not_say_and_nulls_are_read_and_unknown_fields_written_back() {
    let text = json!({
        "id": "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/p",
        "etag": "\"1\"", "tags": {"a": "b"}, "zones": ["1"], "sku": {"name": "n", "tier": "t", "capacity": 1},
        "properties": {"orchestrationMode": "flexible", "provisioningState": "Migrating", "upgradePolicy": {"mode": "x"},
            "virtualMachineProfile": {"osProfile": null, "storageProfile": {}, "networkProfile": {
                "networkInterfaceConfigurations": [null, {"name": "nic", "properties": {
                    "ipConfigurations": [{"name": "ip", "properties": {"loadBalancerBackendAddressPools": null}}]}}]}}}
    });
    let set: ScaleSet = serde_json::from_value(text).unwrap();
    assert_eq!(set.orchestration(), OrchestrationMode::Flexible);
    assert_eq!(set.computer_name_prefix(), None);
    let written = serde_json::to_value(&set).unwrap();
    assert_eq!(written["properties"]["provisioningState"], "Migrating");
    assert_eq!(written["properties"]["upgradePolicy"], json!({"mode": "x"}));
    assert_eq!(
        (&written["tags"], &written["zones"], &written["sku"]["tier"]),
        (&json!({"a": "b"}), &json!(["1"]), &json!("t"))
    );
    assert_eq!(serde_json::from_value::<ScaleSet>(written).unwrap(), set);
}

#[test]
fn power_is_on_off_or_not_known() {
    let id = set("rg", "pool").instance(0);
    let power = |codes: &[&str]| {
        let statuses: Vec<Value> = codes.iter().map(|code| json!({"code": code})).collect();
        machine(&id, json!({"instanceView": {"statuses": statuses}})).power()
    };
    assert_eq!(power(&["ProvisioningState/succeeded", "powerstate/Running"]), Power::On);
    for off in ["stopping", "stopped", "deallocating", "deallocated"] {
        assert_eq!(power(&[&format!("PowerState/{off}")]), Power::Off, "{off}");
    }
    for unknown in [&[] as &[&str], &["PowerState/starting"], &["ProvisioningState/running"], &["PowerState"]]
    {
        assert_eq!(power(unknown), Power::Unknown, "{unknown:?}");
    }
    assert_eq!(machine(&id, json!({})).power(), Power::Unknown);
}

#[test]
fn all_addresses_are_known_the_primary_ones_first_and_canonical() {
    let id = set("rg", "pool").instance(0);
    let nic = |name: &str| format!("{}/networkInterfaces/{name}", id.resource_id());
    let machine = machine(
        &id,
        json!({"osProfile": {"computerName": "POOL000000"}, "vmId": "vm", "latestModelApplied": false,
            "networkProfile": {"networkInterfaces": [{"id": nic("second")}, {"id": nic("FIRST")}]}}),
    );
    let interfaces = [
        interface(&nic("second"), false, &[("10.0.0.9", true), ("fd00::9", false)]),
        interface(
            &nic("first"),
            true,
            &[("fd00:0:0::2", false), ("10.0.0.2", false), ("10.0.0.1", true), ("", false)],
        ),
        interface(
            "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/networkInterfaces/x",
            true,
            &[("10.9.9.9", true)],
        ),
    ];
    let ips = ["10.0.0.1", "10.0.0.2", "10.0.0.9", "fd00::2", "fd00::9"];
    let expected = NodeRecord {
        id: id.clone(),
        vm_id: Some("vm".to_owned()),
        node: Some("pool000000".to_owned()),
        ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        power: Power::Unknown,
        latest_model_applied: Some(false),
        state: MachineState::Ready,
    };
    assert_eq!(NodeRecord::new(id, &machine, &interfaces), expected);
}

#[test]
fn what_a_machine_is_up_to_is_told() {
    let id = set("rg", "pool").instance(0);
    let nic = format!("{}/networkInterfaces/nic", id.resource_id());
    let state = |provisioning: Option<&str>, host: Option<&str>, nics: &[NetworkInterface]| {
        let properties = json!({"provisioningState": provisioning, "osProfile": {"computerName": host}});
        NodeRecord::new(id.clone(), &machine(&id, properties), nics).state
    };
    let nics = [interface(&nic, true, &[("10.0.0.1", true)])];
    for (provisioning, expected) in [
        (Some("Succeeded"), MachineState::Ready),
        (None, MachineState::Ready),
        (Some("Migrating"), MachineState::Ready),
        (Some("Creating"), MachineState::BeingMade),
        (Some("updating"), MachineState::Updating),
        (Some("Failed"), MachineState::Failed),
        (Some("Deleting"), MachineState::Deleting),
    ] {
        assert_eq!(state(provisioning, Some("a"), &nics), expected, "{provisioning:?}");
    }
    assert_eq!(state(Some("Succeeded"), None, &nics), MachineState::BeingMade);
    assert_eq!(state(Some("Succeeded"), Some("a"), &[]), MachineState::BeingMade);
    assert_eq!(state(Some("Deleting"), None, &[]), MachineState::Deleting);
}

#[test]
fn a_node_is_found_by_its_host_name_and_only_then_by_what_it_will_be() {
    let key = set("rg", "pool");
    let (unnamed, plain) = (key.instance(7), key.instance(1));
    let machines = [
        machine(&unnamed, json!({})),
        // A host name that looks like that of the instance with number 8.
        machine(&plain, json!({"osProfile": {"computerName": "pool000008"}})),
        machine(&key.instance(8), json!({})),
    ];
    let snapshot = Snapshot::new(&scale_set("Pool"), &machines, &[]);
    let found = |node: &str| snapshot.find(node).map(|record| record.id.clone());
    assert_eq!(found("POOL000007"), Some(unnamed));
    assert_eq!(found("pool000008"), Some(plain));
    assert_eq!((found("pool000001"), found("other000007"), found("x")), (None, None, None));
    assert_eq!((snapshot.capacity(), snapshot.records().count()), (Some(3), 3));
}

#[test]
fn a_listing_keeps_what_it_happens_not_to_say_and_lacks_what_is_being_deleted() {
    let key = set("rg", "pool");
    let named = |instance: u32, state: &str| {
        let properties = json!({"vmId": "v", "provisioningState": state, "osProfile": {"computerName": node(&key, instance)}});
        machine(&key.instance(instance), properties)
    };
    let first =
        Snapshot::new(&scale_set("pool"), &[named(0, "Succeeded"), named(1, "Succeeded")], &[]).listing(None);
    assert_eq!(first.keys().collect::<Vec<_>>(), [&node(&key, 0), &node(&key, 1)]);
    // One is reimaged, and has no host name meanwhile; the other goes; a third has none yet.
    let machines =
        [machine(&key.instance(0), json!({})), named(1, "Deleting"), machine(&key.instance(2), json!({}))];
    let second = Snapshot::new(&scale_set("pool"), &machines, &[]).listing(Some(&first));
    assert_eq!(second, [(node(&key, 0), first[&node(&key, 0)].clone())].into());
}

#[test]
fn a_provider_id_tells_what_kind_of_node_it_is() {
    let key = set("rg", "pool");
    let (instance, plain) = (key.instance(3), member(&key, "vm"));
    assert_eq!(NodeKind::of(&instance.to_string().to_uppercase()), NodeKind::Instance(key, instance));
    assert_eq!(NodeKind::of(&plain.to_string()), NodeKind::VirtualMachine(plain));
    for odd in ["", "kind://docker/x", "azure:///subscriptions/s", "aws:///zone/i-1"] {
        assert_eq!(NodeKind::of(odd), NodeKind::Unmanaged, "{odd}");
    }
}

#[test]
fn a_scale_set_is_known_by_subscription_group_and_name_in_any_casing() {
    let key = set("rg", "pool");
    let id = key.to_string();
    assert_eq!(
        id,
        "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/pool"
    );
    assert_eq!(ScaleSetKey::from_resource_id(&id.to_uppercase()), Some(key.clone()));
    assert_eq!(ScaleSetKey::from_resource_id(&key.instance(0).resource_id()), None);
    assert_eq!(ScaleSetKey::from_resource_id("nonsense"), None);
    assert_eq!(ScaleSetKey::of_instance(&key.instance(0)), Some(key.clone()));
    assert_eq!(ScaleSetKey::of_instance(&member(&key, "vm")), None);
    assert_eq!(key.resource_id().unwrap(), id.parse().unwrap());
    assert_ne!(key, set("other", "pool"));
}

#[test]
fn a_family_is_what_is_said_or_what_the_address_is() {
    let family = |properties: Value| {
        serde_json::from_value::<clb_vmss::models::IpConfigurationProperties>(properties).unwrap().family()
    };
    assert_eq!(family(json!({})), IpVersion::V4);
    assert_eq!(family(json!({"privateIPAddress": "fd00::1"})), IpVersion::V6);
    assert_eq!(family(json!({"privateIPAddressVersion": "ipv6"})), IpVersion::V6);
}

#[tokio::test(start_paused = true)]
async fn a_set_is_read_in_as_many_calls_as_there_are_lists() {
    let (fake, uniform, flexible) = (Fake::new(10), set("rg", "pool"), set("rg", "flex"));
    fake.state().add_set(&uniform, "Uniform");
    fake.state().add_set(&flexible, "Flexible");
    for index in 0..5 {
        fake.state().add_instance(&uniform, index, "a", 1);
        fake.state().add_member(&flexible, &format!("vm{index}"), 2);
    }
    let calls = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 1)).collect();
    for (key, lists) in [
        (&uniform, ["get set", "list instances", "list instance interfaces"]),
        (&flexible, ["get set", "list members", "list interfaces"]),
    ] {
        fake.take_calls();
        let snapshot = read_scale_set(&*fake, &call(), key, None).await.unwrap().unwrap();
        assert_eq!(snapshot.listing(None), fake.state().listing(key));
        assert_eq!(fake.take_calls(), calls(&lists));
    }
    // What is not there is no error, and a flexible set that seems empty is asked for.
    let gone = set("rg", "gone");
    assert_eq!(read_scale_set(&*fake, &call(), &gone, None).await.unwrap(), None);
    let resource = fake.state().sets[&flexible].clone();
    assert_eq!(read_scale_set(&*fake, &call(), &gone, Some(&resource)).await.unwrap(), None);
    // A part that cannot be read is the whole.
    fake.on_call(|call, _| call == "list instance interfaces");
    assert!(read_scale_set(&*fake, &call(), &uniform, None).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_interface_that_slips_between_two_pages_is_asked_for() {
    let (fake, key) = (Fake::new(2), set("rg", "pool"));
    fake.state().add_set(&key, "Uniform");
    for index in 0..4 {
        fake.state().add_instance(&key, index, "a", index as u16);
    }
    let (mut pages, gone) = (0, key.instance(0));
    fake.on_call(move |call, state| {
        pages += usize::from(call == "list instance interfaces");
        if pages == 2 {
            state.remove_machine(&gone);
        }
        false
    });
    let snapshot = read_scale_set(&*fake, &call(), &key, None).await.unwrap().unwrap();
    let ips: Vec<usize> = snapshot.records().map(|record| record.ips.len()).collect();
    assert_eq!(ips, [2, 2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn one_machine_is_read_with_its_interfaces_and_its_set() {
    let (fake, key) = (Fake::new(2), set("rg", "flex"));
    fake.state().add_set(&key, "Flexible");
    fake.state().add_member(&key, "vm", 1);
    let id = member(&key, "vm");
    let (record, of) = read_machine(&*fake, &call(), &id).await.unwrap().unwrap();
    assert_eq!((record.id, record.ips.len(), record.power), (id, 2, Power::Unknown));
    assert_eq!(of, Some(key.clone()));
    assert_eq!(read_machine(&*fake, &call(), &member(&key, "none")).await.unwrap(), None);
}
