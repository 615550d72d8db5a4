use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;

use clb_vmss::{NameError, ProviderId, ProviderIdError};
use proptest::prelude::*;

const UNIFORM: &str = "azure:///subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/mc_rg/providers\
                       /Microsoft.Compute/virtualMachineScaleSets/aks-pool1-vmss/virtualMachines/10";
const MACHINE: &str = "azure:///subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/mc_rg/providers\
                       /Microsoft.Compute/virtualMachines/vm-1";

fn parse(text: &str) -> Result<ProviderId, ProviderIdError> {
    text.parse()
}

#[test]
fn both_forms_are_read() {
    let subscription = || "00000000-0000-0000-0000-000000000000".parse().unwrap();
    assert_eq!(
        parse(UNIFORM),
        Ok(ProviderId::Uniform {
            subscription: subscription(),
            resource_group: "mc_rg".parse().unwrap(),
            scale_set: "aks-pool1-vmss".parse().unwrap(),
            instance_id: 10,
        })
    );
    assert_eq!(
        parse(MACHINE),
        Ok(ProviderId::VirtualMachine {
            subscription: subscription(),
            resource_group: "mc_rg".parse().unwrap(),
            name: "vm-1".parse().unwrap(),
        })
    );
}

#[test]
fn casing_carries_no_meaning_but_the_spelling_of_names_is_kept() {
    for text in [UNIFORM, MACHINE] {
        let spellings = [text.to_owned(), text.to_uppercase(), text.to_lowercase()];
        let distinct: HashSet<_> = spellings.iter().map(|spelling| parse(spelling).unwrap()).collect();
        assert_eq!(distinct.len(), 1);
        let sorted: BTreeSet<_> = spellings.iter().map(|spelling| parse(spelling).unwrap()).collect();
        assert_eq!(sorted.len(), 1);
    }
    assert_eq!(
        parse("AZURE:///SUBSCRIPTIONS/s/RESOURCEGROUPS/MC_Rg/PROVIDERS/MICROSOFT.COMPUTE/VIRTUALMACHINES/Vm")
            .unwrap()
            .to_string(),
        "azure:///subscriptions/s/resourceGroups/MC_Rg/providers/Microsoft.Compute/virtualMachines/Vm"
    );
}

#[test]
fn ids_of_different_machines_differ() {
    let ids = [
        UNIFORM.to_owned(),
        UNIFORM.replace("/10", "/1"),
        UNIFORM.replace("mc_rg", "mc_rh"),
        MACHINE.to_owned(),
    ];
    assert_eq!(ids.iter().map(|id| parse(id).unwrap()).collect::<HashSet<_>>().len(), ids.len());
}

#[test]
fn every_fault_is_named() {
    use ProviderIdError::{BadInstanceId, BadName, NotAzure, TooLong, TooShort, Unexpected};
    let unexpected = |expected, found: &str| Unexpected { expected, found: found.to_owned() };
    let cases = [
        ("", NotAzure),
        ("azure:/", NotAzure),
        ("azurä://", NotAzure),
        ("aws:///us-east-1a/i-0123", NotAzure),
        (" azure:///subscriptions/s", NotAzure),
        ("kind://docker/azure:///subscriptions/s", NotAzure),
        ("azure://", TooShort { expected: "subscriptions" }),
        ("azure://0c1f3c", unexpected("", "0c1f3c")),
        ("azure:///", unexpected("subscriptions", "")),
        ("azure:////subscriptions/s", unexpected("subscriptions", "")),
        ("azure:///subscriptions/", BadName { part: "subscription", source: NameError::Empty }),
        ("azure:///subscriptions/s", TooShort { expected: "resourceGroups" }),
        ("azure:///subscriptions/s/groups/g", unexpected("resourceGroups", "groups")),
        ("azure:///subscriptions/s/resourceGroups", TooShort { expected: "resource group" }),
        (
            "azure:///subscriptions/s/resourceGroups/../providers",
            BadName { part: "resource group", source: NameError::Dots },
        ),
        (
            "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualMachines/v",
            unexpected("Microsoft.Compute", "Microsoft.Network"),
        ),
        (
            "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d",
            unexpected("virtualMachines", "disks"),
        ),
        (
            "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v?x",
            BadName { part: "virtual machine", source: NameError::BadCharacter { character: '?' } },
        ),
        (
            "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v/extensions/e",
            TooLong { found: "extensions".to_owned() },
        ),
        (
            "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/v",
            TooShort { expected: "virtualMachines" },
        ),
        (&UNIFORM.replace("/10", "/"), BadInstanceId { found: String::new() }),
        (&UNIFORM.replace("/10", "/010"), BadInstanceId { found: "010".to_owned() }),
        (&UNIFORM.replace("/10", "/4294967296"), BadInstanceId { found: "4294967296".to_owned() }),
        (&UNIFORM.replace("/10", "/vm_a"), BadInstanceId { found: "vm_a".to_owned() }),
        (&format!("{UNIFORM}/"), TooLong { found: String::new() }),
    ];
    for (text, error) in cases {
        assert_eq!(parse(text), Err(error), "{text}");
    }
}

#[test]
fn the_provider_ids_of_recorded_nodes_are_read_and_written_back() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/recordings"));
    let Ok(recording) = fs::read_to_string(folder.join("nodes.jsonl")) else {
        eprintln!("skipped: no recordings in {}", folder.display());
        return;
    };
    let key = "\"providerID\":\"";
    let ids: BTreeSet<&str> =
        recording.split(key).skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(!ids.is_empty());
    for id in ids {
        assert_eq!(parse(id).unwrap().to_string(), id);
    }
}

fn name() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_().-]{1,20}".prop_filter("dots are a place, not a name", |name| name != "." && name != "..")
}

fn any_id() -> impl Strategy<Value = ProviderId> {
    (name(), name(), name(), any::<Option<u32>>()).prop_map(
        |(subscription, resource_group, name, instance)| {
            let (subscription, resource_group) =
                (subscription.parse().unwrap(), resource_group.parse().unwrap());
            let name = name.parse().unwrap();
            match instance {
                Some(instance_id) => {
                    ProviderId::Uniform { subscription, resource_group, scale_set: name, instance_id }
                }
                None => ProviderId::VirtualMachine { subscription, resource_group, name },
            }
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_exactly(id in any_id()) {
        let text = id.to_string();
        prop_assert_eq!(&parse(&text).unwrap(), &id);
        prop_assert_eq!(parse(&text).unwrap().to_string(), text);
    }

    #[test]
    fn every_casing_of_an_id_is_that_id(id in any_id(), upper in any::<[bool; 16]>()) {
        let flip = |(at, c): (usize, char)| if upper[at % 16] { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
        let text: String = id.to_string().chars().enumerate().map(flip).collect();
        prop_assert_eq!(parse(&text).unwrap(), id);
    }

    #[test]
    fn an_id_with_one_part_more_or_less_is_refused(id in any_id(), at in 0_usize..16, part in "[a-z]{0,5}") {
        let text = id.to_string();
        let mut parts: Vec<&str> = text.split('/').collect();
        let at = at % parts.len();
        let mut shorter = parts.clone();
        shorter.remove(at);
        prop_assert!(parse(&shorter.join("/")).is_err());
        parts.insert(at, &part);
        prop_assert!(parse(&parts.join("/")).is_err());
    }
}
