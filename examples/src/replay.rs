//! Recorded lists and watch events as changes.

use clb_controller::admission::AdmissionPolicy;
use clb_controller::convert::{self, ConvertError, Converted};
use clb_difftracker::{Change, Kind};
use clb_sim::recording::{Entry, Watched};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::objects::RecordedObjects;

/// What a line of a recording means.
#[derive(Debug, Default)]
pub struct Replayed {
    /// What changed, in order.
    pub changes: Vec<Change>,
    /// What was left out, for people.
    pub problems: Vec<String>,
}

/// Converts a line, with what the controller wrote on the objects in it.
#[must_use]
pub fn changes(objects: &RecordedObjects, entry: &Entry) -> Replayed {
    let policy = AdmissionPolicy::default();
    let service = |service: &Service| convert::service_applied(&policy, &objects.service(service));
    match entry {
        Entry::Services(watched) => of(Kind::Service, watched, service, convert::service_gone),
        Entry::EndpointSlices(watched) => of(
            Kind::EndpointSlice,
            watched,
            |slice: &EndpointSlice| convert::endpoint_slice_applied(slice),
            convert::endpoint_slice_gone,
        ),
        Entry::Nodes(watched) => {
            of(Kind::Node, watched, |node: &Node| convert::node_applied(node), convert::node_gone)
        }
        Entry::Pods(watched) => {
            of(Kind::Pod, watched, |pod: &Pod| convert::pod_applied(&objects.pod(pod)), convert::pod_gone)
        }
    }
}

fn of<K>(
    kind: Kind,
    watched: &Watched<K>,
    applied: impl Fn(&K) -> Result<Converted, ConvertError>,
    gone: impl Fn(&K) -> Result<Change, ConvertError>,
) -> Replayed {
    let mut replayed = Replayed::default();
    let apply = |replayed: &mut Replayed, object: &K| match applied(object) {
        Ok(Converted { change, problems }) => {
            replayed.changes.push(change);
            replayed.problems.extend(problems.iter().map(ToString::to_string));
        }
        Err(error) => replayed.problems.push(error.to_string()),
    };
    match watched {
        Watched::List(items) => {
            replayed.changes.push(Change::ResyncBegin(kind));
            items.iter().for_each(|item| apply(&mut replayed, item));
            replayed.changes.push(Change::ResyncDone(kind));
        }
        Watched::Applied(object) => apply(&mut replayed, object),
        Watched::Deleted(object) => match gone(object) {
            Ok(change) => replayed.changes.push(change),
            Err(error) => replayed.problems.push(error.to_string()),
        },
        Watched::Bookmark | Watched::Error(_) => {}
    }
    replayed
}
