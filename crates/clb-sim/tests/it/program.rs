//! The program.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use clb_sim::recording::{self, FinalLists};
use serde_json::{Value, json};

#[tokio::test]
async fn the_program_says_where_it_answers_and_has_what_it_was_told_to_load() {
    let folder = std::env::temp_dir().join(format!("clb-sim-program-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let manifests = "kind: Namespace\nmetadata: {name: shop}\n---\nkind: Service\nmetadata: {name: web, namespace: shop}\n\
                     spec:\n  ports: [{port: 80}]\n";
    std::fs::write(folder.join("cluster.yaml"), manifests).unwrap();
    let faults =
        "faults:\n- when: always\n  what: {api: azure}\n  how: {refuse: {status: 503, code: Busy}}\n";
    std::fs::write(folder.join("faults.yaml"), faults).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_clb-sim"))
        .args([
            "--azure",
            "127.0.0.1:0",
            "--kube",
            "127.0.0.1:0",
            "--control",
            "127.0.0.1:0",
            "--load",
            "cluster.yaml",
            "--faults",
            "faults.yaml",
        ])
        .current_dir(&folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut endpoint = || lines.next().unwrap().rsplit(' ').next().unwrap().to_owned();
    let (azure, kube, control) = (endpoint(), endpoint(), endpoint());
    let server = lines.find(|line| line.contains("server:")).unwrap();
    assert_eq!(server.trim(), format!("server: {kube}"));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let services: Value =
        client.get(format!("{kube}/api/v1/services")).send().await.unwrap().json().await.unwrap();
    assert_eq!(services["items"][0]["metadata"]["name"], "web");
    let refused = client.get(format!("{azure}/subscriptions/s?api-version=1")).send().await.unwrap();
    assert_eq!(refused.status(), 503);
    let calls: Value = client.get(format!("{control}/calls")).send().await.unwrap().json().await.unwrap();
    let seen = calls["calls"].as_array().unwrap().iter().map(|call| (&call["path"], &call["status"]));
    let expected = [(json!("/api/v1/services"), json!(200)), (json!("/subscriptions/s"), json!(503))];
    assert_eq!(
        seen.collect::<Vec<_>>(),
        expected.iter().map(|(path, status)| (path, status)).collect::<Vec<_>>()
    );
    program.kill().unwrap();
    program.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn the_program_plays_a_recording() {
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/recordings/basic.jsonl");
    let lines = recording::read(Path::new(recording)).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_clb-sim"))
        .args(["--azure", "127.0.0.1:0", "--kube", "127.0.0.1:0", "--control", "127.0.0.1:0"])
        .args(["--replay", recording, "--speed", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(program.stdout.take().unwrap()).lines().map(Result::unwrap);
    let kube = output.nth(1).unwrap().rsplit(' ').next().unwrap().to_owned();
    let played = output.find(|line| line.contains("is played")).unwrap();
    assert_eq!(played, format!("{recording} is played: {} lines", lines.len()));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let list: Value =
        client.get(format!("{kube}/api/v1/services")).send().await.unwrap().json().await.unwrap();
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let mut names: Vec<String> = list["items"].as_array().unwrap().iter().map(name).collect();
    names.sort();
    let last = FinalLists::of(&lines);
    let mut expected: Vec<String> =
        last.services.iter().map(|service| service.metadata.name.clone().unwrap()).collect();
    expected.sort();
    assert_eq!(names, expected);
    program.kill().unwrap();
    program.wait().unwrap();
}

#[test]
fn a_speed_is_a_number_that_is_not_negative() {
    for speed in ["-1", "NaN", "inf", "fast"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_clb-sim")).arg(format!("--speed={speed}")).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{speed}");
    }
}

#[test]
fn the_program_answers_nowhere_but_on_the_loopback_interface() {
    let output = Command::new(env!("CARGO_BIN_EXE_clb-sim")).args(["--azure", "0.0.0.0:0"]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("127.0.0.1 only"));
}
