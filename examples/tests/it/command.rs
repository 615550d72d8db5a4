//! The examples' command lines: what they print, and their exit codes.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn example(name: &str) -> Command {
    // Cargo builds examples before the tests of their package, two folders above the test itself.
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    program.pop();
    let program: PathBuf = program.join("examples").join(name);
    let mut command = Command::new(program);
    command.env_remove("RUST_LOG");
    command
}

fn controller(arguments: &[&str]) -> Output {
    example("controller").args(arguments).output().unwrap()
}

fn nrp_client(arguments: &[&str]) -> (Option<i32>, String) {
    // No answer to a question is a no.
    let output = example("nrp_client").args(arguments).stdin(Stdio::null()).output().unwrap();
    let shown = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), shown)
}

fn recording(name: &str) -> String {
    format!("{}/recordings/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn without_arguments_it_ends_in_sync_and_shows_phases_calls_and_a_summary() {
    let output = controller(&[]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    for part in [
        "nodes/svc                              Pending → Creating",
        "nodes/svc                              Creating → Ready",
        "POST     updateServices",
        "POST     updateAddressLocations",
        "PUT      load balancer f7b460d6-01ff-4f0d-b70c-b74b6e850628",
        "In sync: the gateway holds exactly what the recording ends in.",
        "2 services, 6 addresses at 3 locations",
    ] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
}

#[test]
fn json_is_one_object_and_nothing_else() {
    let output = controller(&["--json", "--latency", "0", "--recording", &recording("basic.jsonl")]);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    let mut shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    // How much is coalesced depends on the machine's pace, and so does how often the controller sees its own writes.
    let calls = shown["nrp_calls"].take();
    assert!(shown["changes"].take().as_u64() > Some(20));
    let expected = json!({
        "in_sync": true, "services": 1, "locations": 3, "addresses": 3, "changes": null, "nrp_calls": null, "mismatches": []
    });
    assert_eq!(shown, expected);
    for kind in ["update_services", "update_address_locations", "put", "delete", "get"] {
        assert!(calls[kind].is_u64(), "{calls}");
    }
}

#[test]
fn a_state_that_is_not_the_expected_one_fails_and_says_where() {
    let expected = recording("basic.expected.json");
    let output = controller(&["--json", "--expected", &expected]);
    assert_eq!(output.status.code(), Some(1));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["in_sync"], json!(false));
    let mismatches: Vec<&str> =
        shown["mismatches"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    for part in [
        "service 5dec0346-d61c-41a2-97e8-53072ad7a0f2 is missing",
        "service f7b460d6-01ff-4f0d-b70c-b74b6e850628 should not be there",
        "10.224.16.1 at 10.224.0.6 does not back 5dec0346-d61c-41a2-97e8-53072ad7a0f2, and should",
    ] {
        assert!(mismatches.contains(&part), "{part:?} is not in {mismatches:#?}");
    }
}

#[test]
fn a_bad_file_or_option_is_named_with_line_and_reason() {
    let folder = std::env::temp_dir().join(format!("clb-examples-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let bad = folder.join("bad.jsonl");
    std::fs::write(
        &bad,
        "{\"t\":0,\"resource\":\"nodes\",\"list\":{\"items\":[]}}\n{\"t\":1,\"resource\":\"secrets\"}\n",
    )
    .unwrap();
    let bad = bad.to_str().unwrap();
    for (arguments, part) in [
        (vec!["--recording", bad], format!("error: {bad}:2: resource is \"secrets\"")),
        (vec!["--recording", "no-such-file"], "error: no-such-file: No such file".to_owned()),
        (vec!["--expected", bad], format!("error: {bad}: missing field `loadBalancerServices` at line 1")),
        (vec!["--speed=-1"], "--speed".to_owned()),
        (vec!["--port", "0"], "--port".to_owned()),
    ] {
        let output = controller(&arguments);
        let shown = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{shown}");
        assert!(shown.contains(&part), "{part:?} is not in {shown:?}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The simulated Azure as the client shows it when the service `web` has these addresses.
fn shown(addresses: &[&str]) -> String {
    let addresses: String = addresses.iter().map(|it| format!("    {it} → web\n")).collect();
    format!("Locations of servicegateway:\n  10.0.0.4\n{addresses}")
}

#[test]
fn the_client_shows_the_gateway_and_changes_nothing_unasked() {
    let (code, output) = nrp_client(&[]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("Services of servicegateway:\n"), "{output}");
    assert!(output.contains("  web (Inbound)\n"), "{output}");
    assert!(output.ends_with(&shown(&["10.1.0.5"])), "{output}");

    let (code, output) = nrp_client(&["--add", "web=10.1.0.6@10.0.0.4"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("10.1.0.6 at 10.0.0.4 backs web, and nothing else\n"), "{output}");
    assert!(output.ends_with("Make it? [y/N] Nothing was changed.\n"), "{output}");
}

#[test]
fn the_client_makes_a_change_that_is_confirmed_and_says_why_one_fails() {
    let (code, output) = nrp_client(&["--yes", "--add", "web=10.1.0.6@10.0.0.4"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.ends_with(&shown(&["10.1.0.5", "10.1.0.6"])), "{output}");
    for (arguments, code, part) in [
        (vec!["--yes", "--add", "nobody=10.1.0.6@10.0.0.4"], 1, "error: POST /subscriptions/s/"),
        (vec!["--add", "10.1.0.6"], 2, "it is SERVICE=ADDRESS@NODE"),
        (vec!["--remove", "10.1.0.6"], 2, "the node is missing"),
        (vec!["--subscription", "s"], 2, "--resource-group"),
    ] {
        let (found, output) = nrp_client(&arguments);
        assert_eq!(found, Some(code), "{output}");
        assert!(output.contains(part), "{output}");
    }
}

fn vmss_nodes(arguments: &[&str]) -> (Option<i32>, String) {
    let output = example("vmss_nodes").args(arguments).output().unwrap();
    let shown = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), shown)
}

#[test]
fn the_nodes_of_the_story_come_go_stop_and_are_reimaged() {
    let expected = "\
A uniform scale set of two and a flexible one of two are made.
  + aks-flex000000: aks-flex_00000006 of aks-flex, unknown, 10.224.0.6
  + aks-flex000001: aks-flex_00000008 of aks-flex, unknown, 10.224.0.7
  + aks-pool000000: instance 0 of aks-pool, unknown, 10.224.0.4
  + aks-pool000001: instance 1 of aks-pool, unknown, 10.224.0.5
  ~ aks-flex000000: on
  ~ aks-flex000001: on
  ~ aks-pool000000: on
  ~ aks-pool000001: on
The uniform one is scaled out to three.
  + aks-pool000002: instance 2 of aks-pool, unknown, 10.224.0.8
  ~ aks-pool000002: on
Instance 0 is switched off.
  ~ aks-pool000000: off
The model gets IPv6, and instance 1 is reimaged: the same node, with an address more.
  ~ aks-pool000001: 10.224.0.5 fd00:224::4
Azure does not answer for a while.
  ! aks-flex cannot be read; what was known stands
  ! aks-pool cannot be read; what was known stands
  ! aks-flex can be read again
  ! aks-pool can be read again
Instance 0 is deleted, which takes time; it is no node any more at once.
  - aks-pool000000
The flexible scale set is deleted.
  - aks-flex000000
  - aks-flex000001
NODE            SCALE SET  INSTANCE    STATE  POWER  ADDRESSES
aks-pool000001  aks-pool   instance 1  ready  on     10.224.0.5 fd00:224::4
aks-pool000002  aks-pool   instance 2  ready  on     10.224.0.8
";
    assert_eq!(vmss_nodes(&["--no-wait"]), (Some(0), expected.to_owned()));
}

#[test]
fn the_nodes_are_shown_once_if_that_is_asked_for() {
    let expected = "\
NODE            SCALE SET  INSTANCE           STATE  POWER  ADDRESSES
aks-flex000000  aks-flex   aks-flex_00000006  ready  on     10.224.0.6
aks-flex000001  aks-flex   aks-flex_00000008  ready  on     10.224.0.7
aks-pool000000  aks-pool   instance 0         ready  on     10.224.0.4
aks-pool000001  aks-pool   instance 1         ready  on     10.224.0.5
";
    assert_eq!(vmss_nodes(&["--once", "--no-wait"]), (Some(0), expected.to_owned()));
}

#[test]
fn what_vmss_nodes_cannot_do_is_said() {
    for (arguments, code, part) in [
        (vec!["--subscription", "s"], 2, "--resource-group"),
        (vec!["--resource-group", "rg"], 2, "--subscription"),
        (vec!["--subscription", "s", "--resource-group", "rg", "--no-wait"], 2, "--no-wait"),
        (
            vec!["--subscription", "s", "--resource-group", "r/g"],
            1,
            "error: it holds '/', which no Azure name does",
        ),
        (vec!["--interval", "0"], 2, "--interval"),
    ] {
        let (found, output) = vmss_nodes(&arguments);
        assert_eq!(found, Some(code), "{output}");
        assert!(output.contains(part), "{output}");
    }
}
