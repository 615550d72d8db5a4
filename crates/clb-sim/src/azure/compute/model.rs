//! What Azure makes of the model of a scale set or machine: the values that a request does not give, as recorded traffic
//! has them.

use serde_json::{Map, Value, json};

use super::super::answer::{field, text};

/// Adds what is not there, in whatever depth; a list stays as it is.
pub(super) fn fill(value: &mut Value, defaults: Value) {
    let (Some(map), Value::Object(defaults)) = (value.as_object_mut(), defaults) else { return };
    for (name, default) in defaults {
        match map.get_mut(&name) {
            Some(given) if !given.is_null() => fill(given, default),
            Some(_) | None => {
                map.insert(name, default);
            }
        }
    }
}

/// Changes a value as a JSON merge patch says (RFC 7396).
pub(super) fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    for (name, change) in patch {
        if change.is_null() {
            if let Some(map) = value.as_object_mut() {
                map.remove(name);
            }
        } else {
            merge(&mut value[name.as_str()], change);
        }
    }
}

/// Removes what is only read.
pub(super) fn without(map: &mut Map<String, Value>, names: &[&str]) {
    map.retain(|given, _| !names.iter().any(|name| name.eq_ignore_ascii_case(given)));
}

/// Completes the profile of a scale set's machines.
pub(super) fn complete_profile(profile: &mut Value) {
    let image = field(profile, "storageProfile").and_then(|storage| field(storage, "imageReference"));
    let is_windows = profile.pointer("/osProfile/windowsConfiguration").is_some()
        || image.is_some_and(|image| text(image, "publisher").to_lowercase().contains("windows"));
    let (os, size) = if is_windows { ("Windows", 127) } else { ("Linux", 30) };
    let configuration = if is_windows {
        json!({"windowsConfiguration": {"provisionVMAgent": true, "enableAutomaticUpdates": true}})
    } else {
        json!({"linuxConfiguration": {"provisionVMAgent": true}})
    };
    fill(
        profile,
        json!({
            "osProfile": {"secrets": [], "allowExtensionOperations": true, "requireGuestProvisionSignal": true},
            "storageProfile": {"osDisk": {
                "osType": os, "createOption": "FromImage", "caching": "None",
                "managedDisk": {"storageAccountType": "Premium_LRS"}, "diskSizeGB": size
            }},
            "networkProfile": {"networkInterfaceConfigurations": []}
        }),
    );
    fill(&mut profile["osProfile"], configuration);
    if let Some(os_profile) = profile["osProfile"].as_object_mut() {
        without(os_profile, &["adminPassword"]);
    }
    complete_interfaces(&mut profile["networkProfile"]);
}

/// Completes the `networkInterfaceConfigurations` of a scale set or an instance.
pub(super) fn complete_interfaces(network: &mut Value) {
    for interface in elements(network, "networkInterfaceConfigurations") {
        fill(
            interface,
            json!({"properties": {
                "enableAcceleratedNetworking": false, "disableTcpStateTracking": false,
                "dnsSettings": {"dnsServers": []}, "enableIPForwarding": false, "ipConfigurations": []
            }}),
        );
        for ip in elements(&mut interface["properties"], "ipConfigurations") {
            fill(ip, json!({"properties": {"privateIPAddressVersion": "IPv4"}}));
        }
    }
}

fn elements<'a>(value: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter(|value| value.is_object())
}
