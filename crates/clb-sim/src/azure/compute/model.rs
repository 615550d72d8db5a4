//! What Azure makes of the model of a scale set or machine: the values that a request does not give, as recorded traffic
//! has them.

use serde_json::{Value, json};

use super::super::answer::{field, text};
use super::super::json::{fill, without};

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
