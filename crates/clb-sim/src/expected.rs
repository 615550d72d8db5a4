//! The state that a recorded cluster should end in.
//!
//! It is worked out from the recording's last lists before any rule of admission: whoever compares brings those rules
//! ([`Wanted`]).

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;

mod wanted;

pub use wanted::{Backing, Held, Verdict, Wanted};

/// What a recording ends in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Expected {
    /// Every Service of type LoadBalancer, by UID.
    pub load_balancer_services: BTreeMap<String, ExpectedService>,
    /// For each egress label value, in lower case: pod IP → host IP.
    #[serde(default)]
    pub egress: BTreeMap<String, BTreeMap<IpAddr, IpAddr>>,
}

/// What is expected of one Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedService {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it is being deleted, held by finalizers.
    pub deleting: bool,
    /// Its IP families, `IPv4` or `IPv6`, the first one first.
    pub ip_families: Vec<String>,
    /// Its ports, in the Service's order.
    #[serde(default)]
    pub ports: Vec<ExpectedPort>,
    /// Pod IP → node IP, with the slices taken by owner reference.
    endpoints: BTreeMap<IpAddr, IpAddr>,
    /// The same with the slices taken by their label, where that is another.
    endpoints_by_service_name_label: Option<BTreeMap<IpAddr, IpAddr>>,
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedPort {
    /// Its name; a Service's only port may have none.
    pub name: Option<String>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// What clients connect to.
    pub port: u16,
    /// What pods listen on: a number, or the name of a port of theirs.
    pub target_port: IntOrString,
    /// What nodes listen on, if they do.
    pub node_port: Option<u16>,
}

impl ExpectedService {
    /// Pod IP → node IP. Where a slice's label and its owner say different things, the label is right.
    #[must_use]
    pub fn endpoints(&self) -> &BTreeMap<IpAddr, IpAddr> {
        self.endpoints_by_service_name_label.as_ref().unwrap_or(&self.endpoints)
    }
}

/// An expected state that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct ExpectedError {
    path: PathBuf,
    reason: String,
}

/// Reads an expected state from a JSON file.
///
/// # Errors
/// [`ExpectedError`] names the file, the line and what is wrong there.
pub fn read(path: &Path) -> Result<Expected, ExpectedError> {
    let error = |reason: String| ExpectedError { path: path.to_owned(), reason };
    let text = fs::read(path).map_err(|source| error(source.to_string()))?;
    // serde_json's messages end in the line and column.
    serde_json::from_slice(&text).map_err(|source| error(source.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(json: &str) -> ExpectedService {
        let head = r#""namespace":"n","name":"s","deleting":false,"ipFamilies":["IPv4"],"endpoints":{"10.0.0.1":"10.1.0.1"}"#;
        serde_json::from_str(&format!("{{{head}{json}}}")).unwrap()
    }

    #[test]
    fn the_label_decides_where_it_says_something_else_than_the_owner() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(*service("").endpoints(), BTreeMap::from([(ip("10.0.0.1"), ip("10.1.0.1"))]));
        let by_label = service(r#","endpointsByServiceNameLabel":{"10.0.0.2":"10.1.0.2"}"#);
        assert_eq!(*by_label.endpoints(), BTreeMap::from([(ip("10.0.0.2"), ip("10.1.0.2"))]));
    }

    #[test]
    fn ports_are_read_with_numbers_and_names_of_target_ports() {
        let json = r#","ports":[{"name":"http","protocol":"TCP","port":80,"targetPort":8080,"nodePort":30000},
            {"protocol":"UDP","port":53,"targetPort":"dns"}]"#;
        let http = ExpectedPort {
            name: Some("http".to_owned()),
            protocol: "TCP".to_owned(),
            port: 80,
            target_port: IntOrString::Int(8080),
            node_port: Some(30000),
        };
        let dns = ExpectedPort {
            name: None,
            protocol: "UDP".to_owned(),
            port: 53,
            target_port: IntOrString::String("dns".to_owned()),
            node_port: None,
        };
        assert_eq!(service(json).ports, [http, dns]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = read(Path::new("no-such-file.json")).unwrap_err().to_string();
        assert!(error.starts_with("no-such-file.json: "), "{error}");
    }
}
