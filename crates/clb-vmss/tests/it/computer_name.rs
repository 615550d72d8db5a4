use clb_vmss::{ComputerName, ComputerNameError, InstanceName, InstanceNameError, NameError};
use proptest::prelude::*;

#[test]
fn a_computer_name_is_a_prefix_and_six_base_36_digits() {
    let cases = [
        ("aks-pool1-12345678-vmss000000", "aks-pool1-12345678-vmss", 0),
        ("aks-pool1-12345678-vmss00000a", "aks-pool1-12345678-vmss", 10),
        ("aks-pool1-12345678-vmss000010", "aks-pool1-12345678-vmss", 36),
        ("akswin00001Z", "akswin", 71),
        ("Vmss000000", "vmss", 0),
        ("azzzzzz", "a", ComputerName::MAX_INSTANCE_ID),
    ];
    for (text, prefix, instance_id) in cases {
        let name: ComputerName = text.parse().unwrap();
        assert_eq!((name.prefix(), name.instance_id()), (prefix, instance_id));
        assert_eq!(name, ComputerName::new(prefix, instance_id).unwrap());
        assert_eq!(name.to_string(), text.to_lowercase());
    }
}

#[test]
fn what_is_no_computer_name_is_refused() {
    let bad_digits = |name: &str| ComputerNameError::BadDigits { name: name.to_owned() };
    let cases = [
        ("", ComputerNameError::TooShort),
        ("00000", ComputerNameError::TooShort),
        ("000000", ComputerNameError::TooShort),
        ("vmss+00001", bad_digits("vmss+00001")),
        ("vmss0000-1", bad_digits("vmss0000-1")),
        ("vmß00000", bad_digits("vmß00000")),
        ("vm_ss000000", ComputerNameError::BadCharacter { character: '_' }),
    ];
    for (text, error) in cases {
        assert_eq!(text.parse::<ComputerName>(), Err(error), "{text}");
    }
    let instance_id = ComputerName::MAX_INSTANCE_ID + 1;
    assert_eq!(
        ComputerName::new("vmss", instance_id),
        Err(ComputerNameError::InstanceIdTooLarge { instance_id })
    );
}

#[test]
fn an_instance_name_splits_at_its_last_underscore() {
    let name: InstanceName = "my_pool_12".parse().unwrap();
    assert_eq!(name, InstanceName { scale_set: "MY_POOL".parse().unwrap(), instance_id: 12 });
    assert_eq!(name.to_string(), "my_pool_12");
}

#[test]
fn what_is_no_instance_name_is_refused() {
    let bad_id = |found: &str| InstanceNameError::BadInstanceId { found: found.to_owned() };
    let cases = [
        ("", InstanceNameError::NoUnderscore),
        ("pool12", InstanceNameError::NoUnderscore),
        ("pool_", bad_id("")),
        ("pool_012", bad_id("012")),
        // A machine of a flexible scale set, whose names end in random text.
        ("pool_1a2b3c4d", bad_id("1a2b3c4d")),
        ("_1", InstanceNameError::BadScaleSet(NameError::Empty)),
        ("a/b_1", InstanceNameError::BadScaleSet(NameError::BadCharacter { character: '/' })),
    ];
    for (text, error) in cases {
        assert_eq!(text.parse::<InstanceName>(), Err(error), "{text}");
    }
}

proptest! {
    #[test]
    fn computer_names_round_trip(prefix in "[a-z0-9.-]{1,20}", instance_id in 0..=ComputerName::MAX_INSTANCE_ID) {
        let name = ComputerName::new(&prefix, instance_id).unwrap();
        prop_assert_eq!(name.to_string().len(), prefix.len() + 6);
        prop_assert_eq!(name.to_string().parse::<ComputerName>().unwrap(), name);
    }

    #[test]
    fn any_text_that_reads_as_a_computer_name_is_written_back_in_lower_case(text in "[ -~ß]{0,12}") {
        if let Ok(name) = text.parse::<ComputerName>() {
            prop_assert_eq!(name.to_string(), text.to_lowercase());
        }
    }

    #[test]
    fn instance_names_round_trip(scale_set in "[A-Za-z0-9_-]{1,20}", instance_id: u32) {
        let name = InstanceName { scale_set: scale_set.parse().unwrap(), instance_id };
        prop_assert_eq!(name.to_string().parse::<InstanceName>().unwrap(), name);
    }
}
