//! Events.

use clb_difftracker::{Failure, FailureKind, Outcome, Success};
use k8s_openapi::api::core::v1::{Event as Told, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{FIELD_MANAGER, KubeWriter, TRIES, params};
use crate::kube::error::{failure, is_conflict, is_not_found, write_outcome};
use crate::objects::{Event, ObjectRef};

/// How long the message of an event may be, in bytes: the API's limit for events of the newer kind, which it shows these as too.
const MAX_MESSAGE: usize = 1_024;
/// How much of an object's name the event's name takes in: with a dot and 16 digits that makes the 253 that a name may have.
const MAX_NAME: usize = 253 - 17;

impl KubeWriter {
    /// Creates the event, or counts up the one that says the same.
    pub(super) async fn tell(&self, event: &Event) -> Outcome {
        let about = &event.about;
        let told = self.told(event);
        let name = told.metadata.name.clone().unwrap_or_default();
        let events: Api<Told> = Api::namespaced(self.client.clone(), &about.key().namespace);
        let post = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let mut tried = 0;
        loop {
            tried += 1;
            match events.create(&post, &told).await {
                Ok(_) => return Outcome::Succeeded(Success::Done),
                Err(error) if is_conflict(&error) => {}
                Err(error) => return write_outcome("create an event on", about, &error),
            }
            let error = match events.get(&name).await {
                Ok(held) => {
                    let patch = Patch::Merge(counted_up(&held, &self.now()));
                    match events.patch(&name, &params(&patch), &patch).await {
                        Ok(_) => return Outcome::Succeeded(Success::Done),
                        Err(error) if is_conflict(&error) || is_not_found(&error) => error,
                        Err(error) => return write_outcome("patch an event on", about, &error),
                    }
                }
                // Events expire: then it is told anew.
                Err(error) if is_not_found(&error) => error,
                Err(error) => return Outcome::Failed(failure("get an event on", about, &error)),
            };
            if tried == TRIES {
                let Failure { message, .. } = failure("count up an event on", about, &error);
                return Outcome::Failed(Failure { kind: FailureKind::Conflict, message });
            }
            sleep(self.pause(about, tried)).await;
        }
    }

    fn told(&self, event: &Event) -> Told {
        let Event { about, kind, reason, message } = event;
        let message = cut(message, MAX_MESSAGE);
        let key = about.key();
        let now = self.now();
        Told {
            metadata: ObjectMeta {
                namespace: Some(key.namespace.clone()),
                name: Some(name(&key.name, hash([about.uid(), kind.as_str(), reason, message]))),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some(match about {
                    ObjectRef::Service { .. } => "Service".to_owned(),
                    ObjectRef::Pod(_) => "Pod".to_owned(),
                }),
                namespace: Some(key.namespace.clone()),
                name: Some(key.name.clone()),
                uid: Some(about.uid().to_owned()),
                ..ObjectReference::default()
            },
            type_: Some(kind.as_str().to_owned()),
            reason: Some(reason.clone().into_owned()),
            message: Some(message.to_owned()),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource { component: Some(FIELD_MANAGER.to_owned()), host: None }),
            reporting_component: Some(FIELD_MANAGER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Told::default()
        }
    }
}

fn counted_up(held: &Told, now: &Time) -> Value {
    let metadata = json!({"uid": held.metadata.uid, "resourceVersion": held.metadata.resource_version});
    json!({"metadata": metadata, "count": held.count.unwrap_or(1).saturating_add(1), "lastTimestamp": now})
}

/// The event's name: whoever tells the same of the same object, now or after a restart, means the same event.
fn name(object: &str, hash: u64) -> String {
    // What is before a dot ends in a letter or digit.
    let object = cut(object, MAX_NAME).trim_end_matches(['-', '.']);
    format!("{object}.{hash:016x}")
}

/// As much of the beginning as fits in so many bytes.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or_default()]
}

/// FNV-1a (Fowler, Noll, Vo), 64 bits, over texts. Names depend on it: it never changes.
pub(super) fn hash<const N: usize>(texts: [&str; N]) -> u64 {
    // No text has a byte 0xff, so that two lists of texts are not the same bytes.
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_valid_one_however_long_the_objects_is() {
        assert_eq!(name("web", 0x1f), "web.000000000000001f");
        let long = format!("{}-.{}", "a".repeat(234), "b".repeat(17));
        assert_eq!(name(&long, 0), format!("{}.0000000000000000", "a".repeat(234)));
        assert_eq!(name(&"a".repeat(253), 0).len(), 253);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!([cut("aäb", 1), cut("aäb", 2), cut("aäb", 3), cut("aäb", 9)], ["a", "a", "aä", "aäb"]);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // The published vector of the empty text, and what follows it for one separator.
        assert_eq!(hash([]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash([""]), (0xcbf2_9ce4_8422_2325_u64 ^ 0xff).wrapping_mul(0x100_0000_01b3));
        assert_ne!(hash(["ab", "c"]), hash(["a", "bc"]));
    }
}
