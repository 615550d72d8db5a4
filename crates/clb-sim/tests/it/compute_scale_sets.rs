//! Uniform scale sets and their instances: what is written, what is read, and which versions they have.

use clb_sim::azure::{Completion, Power};
use serde_json::{Value, json};

use crate::compute::*;
use crate::support::*;

fn etags(world: &mut World, set: &str, count: u64) -> (String, Vec<String>) {
    let text = |value: Value| value["etag"].as_str().unwrap().to_owned();
    let instances = (0..count).map(|number| text(world.ok(get(&instance_path(set, number))))).collect();
    (text(world.ok(get(&set_path(set)))), instances)
}

fn pool(name: &str) -> Value {
    json!({"networkInterfaceConfigurations": [{"name": "nic", "properties": {"primary": true, "ipConfigurations": [
        {"name": "ip0", "properties": {
            "subnet": {"id": "/subnet"}, "primary": true, "privateIPAddressVersion": "IPv4",
            "loadBalancerBackendAddressPools": [{"id": name}]
        }}
    ]}}]})
}

#[test]
fn a_scale_set_is_read_as_it_was_written_and_completed() {
    let mut world = World::empty();
    let created = world.0.handle(&put(&set_path("Set"), uniform(1)));
    assert_eq!((created.status, header(&created, "etag")), (201, Some("\"1\"")));
    assert_eq!(created.body["properties"]["provisioningState"], "Creating");
    let read = world.0.handle(&get(&set_path("sET")));
    assert_eq!((read.status, header(&read, "etag")), (200, Some("\"1\"")));
    let expected = json!({
        "id": set_path("Set"), "name": "Set", "type": "Microsoft.Compute/virtualMachineScaleSets",
        "location": "eastus", "etag": "\"1\"",
        "sku": {"name": "Standard_D2s_v3", "tier": "Standard", "capacity": 1},
        "properties": {
            "orchestrationMode": "Uniform", "singlePlacementGroup": true, "platformFaultDomainCount": 5,
            "overprovision": true, "doNotRunExtensionsOnOverprovisionedVMs": false,
            "upgradePolicy": {"mode": "Manual"}, "provisioningState": "Succeeded",
            "uniqueId": "00000000-0000-4000-8000-000000000001", "timeCreated": "1970-01-01T00:00:00Z",
            "virtualMachineProfile": {
                "timeCreated": "1970-01-01T00:00:00Z",
                "osProfile": {
                    "computerNamePrefix": "node", "adminUsername": "u", "secrets": [],
                    "allowExtensionOperations": true, "requireGuestProvisionSignal": true,
                    "linuxConfiguration": {"provisionVMAgent": true}
                },
                "storageProfile": {"osDisk": {
                    "osType": "Linux", "createOption": "FromImage", "caching": "None", "diskSizeGB": 30,
                    "managedDisk": {"storageAccountType": "Premium_LRS"}
                }},
                "networkProfile": {"networkInterfaceConfigurations": [{"name": "nic", "properties": {
                    "primary": true, "enableAcceleratedNetworking": false, "disableTcpStateTracking": false,
                    "dnsSettings": {"dnsServers": []}, "enableIPForwarding": false,
                    "ipConfigurations": [{"name": "ip0", "properties": {
                        "subnet": {"id": "/subnet"}, "privateIPAddressVersion": "IPv4", "primary": true
                    }}]
                }}]}
            }
        }
    });
    assert_eq!(read.body, expected);
}

#[test]
fn an_instance_has_a_number_a_host_name_and_its_status_if_that_is_asked_for() {
    let mut world = World::empty();
    world.ok(put(&set_path("Set"), uniform(2)));
    let read = world.0.handle(&get(&instance_path("set", 1)));
    assert_eq!((read.status, header(&read, "etag")), (200, Some("\"1\"")));
    let mut body = read.body;
    for found_elsewhere in ["storageProfile", "networkProfileConfiguration"] {
        body["properties"].as_object_mut().unwrap().remove(found_elsewhere).unwrap();
    }
    let id = instance_path("Set", 1);
    let expected = json!({
        "id": id, "name": "Set_1", "type": "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
        "location": "eastus", "instanceId": "1", "etag": "\"1\"",
        "sku": {"name": "Standard_D2s_v3", "tier": "Standard"},
        "properties": {
            "latestModelApplied": true, "modelDefinitionApplied": "VirtualMachineScaleSet",
            "provisioningState": "Succeeded", "hardwareProfile": {"vmSize": "Standard_D2s_v3"},
            "resilientVMDeletionStatus": "Disabled", "vmId": "00000000-0000-4000-8000-000000000003",
            "timeCreated": "1970-01-01T00:00:00Z",
            "osProfile": {
                "computerName": "node000001", "adminUsername": "u", "secrets": [],
                "allowExtensionOperations": true, "requireGuestProvisionSignal": true,
                "linuxConfiguration": {"provisionVMAgent": true}
            },
            "networkProfile": {"networkInterfaces": [{"id": format!("{id}/networkInterfaces/nic")}]}
        }
    });
    assert_eq!(body, expected);

    let list = format!("{}/virtualMachines", set_path("set"));
    assert_eq!(world.each(&list, "/properties/instanceView"), [Value::Null, Value::Null]);
    let listed = world.ok(expanded(&list))["value"][1]["properties"]["instanceView"].clone();
    assert_eq!(
        listed["statuses"],
        json!([
            {"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded",
             "time": "1970-01-01T00:00:00Z"},
            {"code": "PowerState/running", "level": "Info", "displayStatus": "VM running"}
        ])
    );
    assert_eq!(world.ok(get(&format!("{}/instanceView", instance_path("set", 1)))), listed);
    assert_eq!(world.ok(expanded(&instance_path("set", 1)))["properties"]["instanceView"], listed);
}

#[test]
fn host_names_end_in_six_digits_of_base_36() {
    let mut world = World::empty();
    world.ok(put(&set_path("set"), uniform(38)));
    let list = format!("{}/virtualMachines", set_path("set"));
    let names = world.each(&list, "/properties/osProfile/computerName");
    assert_eq!(
        [&names[9], &names[10], &names[35], &names[37]],
        ["node000009", "node00000A", "node00000Z", "node000011"]
    );
}

#[test]
fn a_write_that_changes_nothing_leaves_the_version() {
    let mut world = World::empty();
    world.ok(put(&set_path("set"), uniform(1)));
    let same = world.0.handle(&put(&set_path("set"), uniform(1)));
    assert_eq!((same.status, header(&same, "etag")), (200, Some("\"1\"")));
    assert_eq!(same.body["properties"]["provisioningState"], "Updating");
    // What was read can be written back.
    let read = world.ok(get(&set_path("set")));
    world.ok(put(&set_path("set"), read.clone()));
    assert_eq!(world.ok(get(&set_path("set"))), read);
    let instance = world.ok(expanded(&instance_path("set", 0)));
    world.ok(put(&instance_path("set", 0), instance.clone()));
    assert_eq!(world.ok(expanded(&instance_path("set", 0))), instance);
    // Nobody can tag an instance.
    world.ok(put(&instance_path("set", 0), json!({"tags": {"a": "b"}})));
    assert_eq!(world.ok(expanded(&instance_path("set", 0))), instance);
    assert_eq!(etags(&mut world, "set", 1), ("\"1\"".to_owned(), vec!["\"1\"".to_owned()]));
}

#[test]
fn an_instance_joins_a_pool_and_gives_its_scale_set_a_new_version() {
    let mut world = stocked();
    world.ok(put(&set_path("set"), uniform(2)));
    let body = json!({"properties": {"networkProfileConfiguration": pool(&pool_id("a"))}});
    let answer = world.0.handle(&if_match("\"1\"", put(&instance_path("set", 1), body)));
    assert_eq!((answer.status, header(&answer, "etag")), (200, Some("\"2\"")));
    assert_eq!(answer.body["properties"]["provisioningState"], "Updating");
    let ones = |texts: &[&str]| texts.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>();
    assert_eq!(etags(&mut world, "set", 2), ("\"2\"".to_owned(), ones(&["1", "2"])));
    let instance = world.ok(get(&instance_path("set", 1)));
    assert_eq!(instance["properties"]["modelDefinitionApplied"], "VirtualMachine");
    let interface = world.ok(get(&format!("{}/networkInterfaces/NIC", instance_path("set", 1))));
    let ip = &interface["properties"]["ipConfigurations"][0]["properties"];
    assert_eq!(ip["loadBalancerBackendAddressPools"], json!([{"id": pool_id("a")}]));
    assert_eq!(ip["privateIPAddress"], "10.224.0.5");
}

#[test]
fn another_version_than_the_one_that_is_there_is_refused_in_azures_words() {
    let mut world = World::empty();
    world.ok(put(&set_path("set"), uniform(1)));
    let mismatch = |given: &str, is: u32| {
        let message =
            format!("Etag provided in if-match header \"{given}\" does not match etag \"{is}\" of resource.");
        (412, json!({"code": "PreconditionFailed", "message": message}))
    };
    let bodies = [
        put(&set_path("set"), uniform(3)),
        patch(&set_path("set"), json!({"sku": {"capacity": 3}})),
        delete(&set_path("set")),
        put(&instance_path("set", 0), json!({})),
        delete(&instance_path("set", 0)),
    ];
    for request in bodies {
        for etag in ["invalid", "\"7\""] {
            let refused = world.refusal(if_match(etag, request.clone()));
            assert_eq!(refused, mismatch(etag.trim_matches('"'), 1));
        }
    }
    assert_eq!(world.0.handle(&if_match("*", put(&set_path("new"), uniform(0)))).status, 412);
    assert_eq!(world.0.handle(&if_match("*", put(&set_path("set"), uniform(2)))).status, 200);
    assert_eq!(world.refusal(if_match("\"1\"", delete(&set_path("set")))), mismatch("1", 2));
}

#[test]
fn of_many_writers_with_one_version_one_wins_each_time() {
    let mut world = stocked();
    world.ok(put(&set_path("set"), uniform(8)));
    let mut wins = 0;
    for round in 0..50_u64 {
        let (set, instances) = etags(&mut world, "set", 8);
        // All read the scale set; whoever writes an instance spoils it for those who write the set.
        let body = json!({"properties": {"networkProfileConfiguration": pool(&pool_id(["a", "b"][(round / 8 % 2) as usize]))}});
        let number = round % 8;
        let first = if_match(&instances[number as usize], put(&instance_path("set", number), body.clone()));
        assert_eq!(world.0.handle(&first).status, 200);
        let tags = json!({"tags": {"round": round.to_string()}});
        for late in [
            first,
            if_match(&set, patch(&set_path("set"), tags.clone())),
            if_match(&set, put(&set_path("set"), uniform(9))),
        ] {
            assert_eq!(world.0.handle(&late).status, 412, "{late:?}");
        }
        let (set, _) = etags(&mut world, "set", 8);
        let write = if_match(&set, patch(&set_path("set"), tags));
        wins += (0..5).filter(|_| world.0.handle(&write).status == 200).count();
    }
    assert_eq!(wins, 50);
    assert_eq!(etags(&mut world, "set", 0).0, "\"101\"");
}

#[test]
fn a_patch_merges_and_replaces_tags_whole() {
    let mut world = World::empty();
    world.ok(put(&set_path("set"), uniform(1)));
    world.ok(patch(&set_path("set"), json!({"tags": {"a": "1", "b": "2"}})));
    let before = world.ok(get(&set_path("set")));
    world.ok(patch(&set_path("set"), json!({
        "tags": {"c": "3"}, "properties": {"singlePlacementGroup": null, "upgradePolicy": {"mode": "Automatic"}}
    })));
    let mut expected = before;
    expected["tags"] = json!({"c": "3"});
    expected["properties"]["upgradePolicy"]["mode"] = json!("Automatic");
    expected["etag"] = json!("\"3\"");
    assert_eq!(world.ok(get(&set_path("set"))), expected);
    for fixed in [json!({"location": "westus"}), json!({"properties": {"orchestrationMode": "Flexible"}})] {
        let refused = world.refused(patch(&set_path("set"), fixed));
        assert_eq!(refused, (409, "PropertyChangeNotAllowed".to_owned()));
    }
    assert_eq!(world.ok(get(&set_path("set"))), expected);
}

#[test]
fn what_cannot_be_a_scale_set_is_refused() {
    let mut world = World::empty();
    let change = |pointer: &str, value: Value| {
        let mut body = uniform(1);
        *body.pointer_mut(pointer).unwrap() = value;
        body
    };
    for (body, code) in [
        (json!([]), "InvalidRequestContent"),
        (change("/location", Value::Null), "LocationRequired"),
        (change("/sku/capacity", json!(-1)), "InvalidParameter"),
        (change("/sku/capacity", json!("1")), "InvalidParameter"),
        (change("/properties/orchestrationMode", json!("Other")), "InvalidParameter"),
        (change("/properties/virtualMachineProfile", Value::Null), "InvalidParameter"),
    ] {
        assert_eq!(world.refused(put(&set_path("set"), body)), bad(code));
    }
    assert_eq!(world.each(&format!("{COMPUTE}/virtualMachineScaleSets"), "/name"), [Value::Null; 0]);
    assert_eq!(world.0.machines().count(), 0);
}

#[test]
fn instances_have_the_model_they_were_made_from_until_they_are_upgraded_or_reimaged() {
    let mut world = stocked();
    world.ok(put(&set_path("set"), uniform(3)));
    let model = json!({"properties": {"virtualMachineProfile": {"networkProfile": pool(&pool_id("a"))}}});
    world.ok(patch(&set_path("set"), model));
    world.ok(patch(&set_path("set"), json!({"sku": {"capacity": 4}})));
    let list = format!("{}/virtualMachines", set_path("set"));
    let latest = |world: &mut World| world.each(&list, "/properties/latestModelApplied");
    assert_eq!(latest(&mut world), [false, false, false, true]);
    world.ok(post(&format!("{}/manualupgrade", set_path("set")), json!({"instanceIds": ["0"]})));
    assert_eq!(latest(&mut world), [true, false, false, true]);
    world.ok(post(&format!("{}/reimage", instance_path("set", 1)), Value::Null));
    assert_eq!(latest(&mut world), [true, true, false, true]);
    assert!(world.0.reimage(&instance_path("SET", 2)));
    assert_eq!(latest(&mut world), [true; 4]);
    let pools = "/properties/ipConfigurations/0/properties/loadBalancerBackendAddressPools";
    let interfaces = format!("{}/networkInterfaces", set_path("set"));
    assert_eq!(world.each(&interfaces, pools), vec![json!([{"id": pool_id("a")}]); 4]);
    // With an automatic policy a new model reaches all.
    let model = json!({"properties": {
        "upgradePolicy": {"mode": "Automatic"}, "virtualMachineProfile": {"networkProfile": pool(&pool_id("b"))}
    }});
    world.ok(patch(&set_path("set"), model));
    assert_eq!(latest(&mut world), [true; 4]);
    assert_eq!(world.each(&interfaces, pools), vec![json!([{"id": pool_id("b")}]); 4]);
}

#[test]
fn a_backend_pool_stays_while_a_model_or_an_instance_names_it() {
    let mut world = World::empty();
    world.ok(put(&public_ip_path("a"), public_ip("IPv4")));
    world.ok(put(&load_balancer_path("a"), load_balancer("a", &[])));
    let mut set = uniform(1);
    set["properties"]["virtualMachineProfile"]["networkProfile"] = pool(&pool_id("a"));
    world.ok(put(&set_path("set"), set));
    let mut emptied = load_balancer("a", &[]);
    emptied["properties"]["backendAddressPools"] = json!([]);
    let assert_in_use = |world: &mut World| {
        let refused = world.refused(delete(&load_balancer_path("a")));
        assert_eq!(refused, bad("LoadBalancerInUseByVirtualMachineScaleSet"));
        let refused = world.refused(put(&load_balancer_path("a"), emptied.clone()));
        assert_eq!(refused, bad("InUseBackendAddressPoolCannotBeDeleted"));
    };
    assert_in_use(&mut world);
    // The model first, but the instance is as it was made.
    let without = uniform(1)["properties"]["virtualMachineProfile"]["networkProfile"].clone();
    world.ok(patch(
        &set_path("set"),
        json!({"properties": {"virtualMachineProfile": {"networkProfile": without}}}),
    ));
    assert_in_use(&mut world);
    world.ok(post(&format!("{}/manualupgrade", set_path("set")), json!({"instanceIds": ["0"]})));
    world.ok(put(&load_balancer_path("a"), emptied.clone()));
    world.ok(put(&load_balancer_path("a"), load_balancer("a", &[])));
    assert_eq!(world.0.handle(&delete(&load_balancer_path("a"))).status, 200);
}

#[test]
fn capacity_goes_up_and_down_and_numbers_are_never_given_twice() {
    let mut world = World::empty();
    world.ok(put(&set_path("set"), uniform(3)));
    let list = format!("{}/virtualMachines", set_path("set"));
    let numbers = |world: &mut World| world.each(&list, "/instanceId");
    let capacity = |world: &mut World| world.ok(get(&set_path("set")))["sku"]["capacity"].clone();
    world.ok(patch(&set_path("set"), json!({"sku": {"capacity": 2}})));
    assert_eq!(numbers(&mut world), ["0", "1"]);
    world.ok(patch(&set_path("set"), json!({"sku": {"capacity": 4}})));
    assert_eq!(numbers(&mut world), ["0", "1", "3", "4"]);
    let answer =
        world.0.handle(&post(&format!("{}/delete", set_path("set")), json!({"instanceIds": ["0", "3"]})));
    assert_eq!((answer.status, &answer.body), (202, &Value::Null));
    assert_eq!((numbers(&mut world), capacity(&mut world)), (vec![json!("1"), json!("4")], json!(2)));
    world.ok(delete(&instance_path("set", 4)));
    assert_eq!((numbers(&mut world), capacity(&mut world)), (vec![json!("1")], json!(1)));
    assert!(world.0.remove_machine(&instance_path("set", 1)));
    assert!(!world.0.remove_machine(&instance_path("set", 1)));
    assert_eq!((numbers(&mut world), capacity(&mut world)), (vec![], json!(0)));
    // A PUT that does not say how many leaves it.
    let mut body = uniform(0);
    body["sku"] = json!({"name": "Standard_D2s_v3"});
    world.ok(patch(&set_path("set"), json!({"sku": {"capacity": 1}})));
    world.ok(put(&set_path("set"), body));
    assert_eq!((numbers(&mut world), capacity(&mut world)), (vec![json!("5")], json!(1)));
}

#[test]
fn actions_name_instances_that_are_there() {
    let mut world = World::empty();
    world.ok(put(&set_path("set"), uniform(2)));
    let act = |action: &str, body: Value| post(&format!("{}/{action}", set_path("set")), body);
    for action in ["delete", "manualupgrade"] {
        let missing = json!({
            "code": "InvalidParameter", "message": "Required parameter 'instanceIds' is missing (null).",
            "target": "instanceIds"
        });
        assert_eq!(world.refusal(act(action, json!({}))), (400, missing));
    }
    for action in ["delete", "start", "reimage"] {
        let message = "The provided instanceId 7 is not an active Virtual Machine Scale Set VM instanceId.";
        let unknown = json!({"code": "InvalidParameter", "message": message, "target": "instanceIds"});
        assert_eq!(world.refusal(act(action, json!({"instanceIds": ["0", "7"]}))), (400, unknown));
    }
    let power = |world: &World| world.0.machines().map(|machine| machine.power).collect::<Vec<_>>();
    world.ok(act("powerOff", json!({"instanceIds": ["1"]})));
    assert_eq!(power(&world), [Power::Running, Power::Stopped]);
    world.ok(act("deallocate", Value::Null));
    assert_eq!(power(&world), [Power::Deallocated; 2]);
    world.ok(act("start", json!({"instanceIds": ["*"]})));
    assert_eq!(power(&world), [Power::Running; 2]);
    world.ok(post(&format!("{}/deallocate", instance_path("set", 0)), Value::Null));
    assert_eq!(power(&world), [Power::Deallocated, Power::Running]);
    let view = world.ok(get(&format!("{}/instanceView", set_path("set"))));
    assert_eq!(
        view["virtualMachine"]["statusesSummary"],
        json!([
            {"code": "PowerState/deallocated", "count": 1}, {"code": "PowerState/running", "count": 1},
            {"code": "ProvisioningState/succeeded", "count": 2}
        ])
    );
    world.ok(act("delete", json!({"instanceIds": ["*"]})));
    assert_eq!(power(&world), []);
}

#[test]
fn operations_are_computes_own() {
    for (completion, polls) in
        [(Completion::Immediate, vec!["Succeeded"]), (Completion::Polled, vec!["InProgress", "Succeeded"])]
    {
        let mut world = World::with(200, completion);
        let created = world.0.handle(&put(&set_path("set"), uniform(0)));
        let operation = header(&created, "azure-asyncoperation").unwrap();
        let place = "/subscriptions/s/providers/Microsoft.Compute/locations/eastus/operations/";
        let id = operation.strip_prefix(place).unwrap().split('?').next().unwrap();
        for status in polls {
            let time = "1970-01-01T00:00:00Z";
            let mut expected = json!({"startTime": time, "status": status, "name": id});
            if status == "Succeeded" {
                expected["endTime"] = json!(time);
            }
            assert_eq!(world.ok(follow(operation)), expected);
        }
        let deleted = world.0.handle(&delete(&set_path("set")));
        assert_eq!((deleted.status, &deleted.body), (202, &Value::Null));
        let location = header(&deleted, "location").unwrap();
        assert!(location.starts_with(place) && location.contains("monitor=true"), "{location}");
        let statuses: Vec<u16> = (0..2).map(|_| world.0.handle(&follow(location)).status).collect();
        assert_eq!(statuses, if completion == Completion::Polled { [202, 204] } else { [204, 204] });
    }
}

#[test]
fn a_pool_that_is_not_there_is_refused_whoever_names_it() {
    let mut world = stocked();
    world.ok(put(&set_path("set"), uniform(1)));
    let missing = || pool(&pool_id("none"));
    let mut other = uniform(1);
    other["properties"]["virtualMachineProfile"]["networkProfile"] = missing();
    let model = json!({"properties": {"virtualMachineProfile": {"networkProfile": missing()}}});
    let interface = missing()["networkInterfaceConfigurations"][0]["properties"].take();
    for request in [
        put(&set_path("other"), other),
        patch(&set_path("set"), model),
        put(&instance_path("set", 0), json!({"properties": {"networkProfileConfiguration": missing()}})),
        put(
            &format!("{NETWORK}/networkInterfaces/nic"),
            json!({"location": "eastus", "properties": interface}),
        ),
    ] {
        assert_eq!(world.refused(request.clone()), bad("InvalidResourceReference"), "{request:?}");
    }
}
