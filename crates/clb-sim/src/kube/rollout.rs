//! Replacing pods, as a Deployment does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::cluster::{Answer, Cluster, Request};
use super::conditions::is_true;
use super::controllers::{is_terminating, text};
use super::kind::Kind;
use super::server::KubeSimulation;

/// Pods that take the place of others one by one, as in a Deployment with `maxSurge` 1, `maxUnavailable` 0 and
/// `minReadySeconds` 0: another one is made, and when as many are ready as were asked for, an old one is deleted. One that is
/// deleted no longer counts, however long it takes to stop. A new pod that somebody else deletes is made again.
///
/// Somebody has to run the cluster's controllers meanwhile ([`KubeSimulation::run_controllers`]), and to open the readiness
/// gates that the template has.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    /// The namespace of the pods.
    pub namespace: String,
    /// The labels of the pods, old and new: as many are wanted as have them when it begins.
    pub selector: BTreeMap<String, String>,
    /// A pod as it is created, with the labels of the selector and a `generateName`.
    pub template: Value,
}

/// Why a roll-out does not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RolloutError {
    /// The API server takes no such pod, or does not let one go.
    #[error("the API server refused: {0}")]
    Refused(String),
    /// New pods would not be found again.
    #[error("the template lacks the label {0} of the selector")]
    NotSelected(String),
}

/// What is to be done next.
enum Step {
    Create,
    Delete(String),
    /// Wait for a change after this version.
    Wait(u64),
    Done,
}

impl Rollout {
    /// Replaces the pods. Returns when all new ones are ready and all old ones are deleted, though they may not have stopped,
    /// with the names of the new ones. It waits for changes of the cluster alone.
    ///
    /// # Errors
    /// [`RolloutError`]; what came before stays done.
    pub async fn run(&self, simulation: &KubeSimulation) -> Result<BTreeSet<String>, RolloutError> {
        let labels = &self.template["metadata"]["labels"];
        if let Some((key, _)) =
            self.selector.iter().find(|(key, value)| labels[key.as_str()] != value.as_str())
        {
            return Err(RolloutError::NotSelected(key.clone()));
        }
        let old =
            simulation.with_cluster(|cluster| self.pods(cluster).map(uid).collect::<BTreeSet<String>>());
        loop {
            match simulation.with_cluster(|cluster| self.step(cluster, &old)) {
                Step::Create => self.ask(simulation, "POST", "", &self.template)?,
                Step::Delete(name) => self.ask(simulation, "DELETE", &format!("/{name}"), &Value::Null)?,
                Step::Wait(version) => drop(simulation.changed_since(version).await),
                Step::Done => {
                    let name = |pod: &Value| text(pod, "/metadata/name").to_owned();
                    return Ok(simulation.with_cluster(|cluster| self.pods(cluster).map(name).collect()));
                }
            }
        }
    }

    /// The pods that count.
    fn pods<'a>(&self, cluster: &'a Cluster) -> impl Iterator<Item = &'a Value> {
        let is_one = |pod: &&Value| {
            let metadata = &pod["metadata"];
            let mut labels = self.selector.iter();
            metadata["namespace"] == self.namespace.as_str()
                && !is_terminating(pod)
                && labels.all(|(key, value)| metadata["labels"][key.as_str()] == value.as_str())
        };
        cluster.objects(Kind::Pod).filter(is_one)
    }

    /// What a Deployment does with these pods, `old` being the uids of all that there were.
    fn step(&self, cluster: &Cluster, old: &BTreeSet<String>) -> Step {
        let (former, new): (Vec<&Value>, Vec<&Value>) =
            self.pods(cluster).partition(|pod| old.contains(&uid(pod)));
        let ready = |pods: &[&Value]| pods.iter().filter(|pod| is_true(pod, "Ready")).count();
        let (all, wanted) = (former.len() + new.len(), old.len());
        if new.len() < wanted && all <= wanted {
            return Step::Create;
        }
        // Old pods that are not ready go first, for they serve nobody.
        let unready = former.iter().find(|pod| !is_true(pod, "Ready"));
        let spare = (ready(&former) + ready(&new) > wanted).then(|| former.first()).flatten();
        let is_settled = ready(&new) == new.len();
        match unready.filter(|_| is_settled && all > wanted).or(spare) {
            Some(pod) => Step::Delete(text(pod, "/metadata/name").to_owned()),
            None if former.is_empty() && is_settled => Step::Done,
            None => Step::Wait(cluster.version()),
        }
    }

    fn ask(
        &self,
        simulation: &KubeSimulation,
        method: &str,
        pod: &str,
        body: &Value,
    ) -> Result<(), RolloutError> {
        let path = format!("/api/v1/namespaces/{}/pods{pod}", self.namespace);
        let request = Request { method: method.to_owned(), path, body: body.clone(), ..Request::default() };
        match simulation.handle(&request) {
            // Somebody else was faster.
            Answer::Body { status: 404, .. } if method == "DELETE" => Ok(()),
            Answer::Body { status, body } if status >= 300 => {
                Err(RolloutError::Refused(text(&body, "/message").to_owned()))
            }
            Answer::Body { .. } | Answer::Watch(_) => Ok(()),
        }
    }
}

fn uid(pod: &Value) -> String {
    text(pod, "/metadata/uid").to_owned()
}
