//! Lists and watches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::{Answer, Change, Cluster, Key, Request};
use super::kind::{Kind, Target};
use super::selector::Selector;
use super::status::Refusal;
use super::table::table;

/// A stream of events that somebody is listening to.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    kind: Kind,
    namespace: Option<String>,
    selector: Selector,
    form: Form,
    /// Everything up to this version has been told.
    version: u64,
    /// What is told before anything else.
    waiting: Vec<Value>,
    has_ended: bool,
    /// Whether it wants to hear now and then up to which version it has heard everything.
    pub wants_bookmarks: bool,
    /// After how many seconds it is to end, if it said so.
    pub timeout_seconds: Option<u64>,
}

impl Watch {
    /// Whether it has nothing more to say.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended && self.waiting.is_empty()
    }

    /// Tells that everything up to here has been told.
    #[must_use]
    pub fn bookmark(&self) -> Value {
        bookmark(self.kind, self.version, false)
    }

    /// Ends it as one whose version is too old.
    pub fn expire(&mut self, current: u64) {
        let refusal = Refusal::expired(format!("too old resource version: {} ({current})", self.version));
        self.waiting = vec![json!({"type": "ERROR", "object": refusal.body()})];
        self.has_ended = true;
    }

    fn is_about(&self, (kind, namespace, _): &Key) -> bool {
        *kind == self.kind && self.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
    }

    fn event(&self, kind: &str, object: &Value, now: Duration) -> Value {
        json!({"type": kind, "object": self.form.show(self.kind, object, now)})
    }

    /// What a change is for this watch: one that begins to match is added, one that no longer does is deleted.
    fn told(&self, change: &Change, version: u64, now: Duration) -> Option<Value> {
        if !self.is_about(&change.key) {
            return None;
        }
        let matching = |object: &Arc<Value>| self.selector.matches(object);
        let did = change.before.as_ref().filter(|before| matching(before));
        match (did, !change.is_removal && matching(&change.now)) {
            (None, false) => None,
            (None, true) => Some(self.event("ADDED", &change.now, now)),
            (Some(_), true) => Some(self.event("MODIFIED", &change.now, now)),
            (Some(_), false) if change.is_removal => Some(self.event("DELETED", &change.now, now)),
            (Some(before), false) => {
                let mut last = before.as_ref().clone();
                last["metadata"]["resourceVersion"] = json!(version.to_string());
                Some(self.event("DELETED", &last, now))
            }
        }
    }
}

fn bookmark(kind: Kind, version: u64, ends_initial: bool) -> Value {
    let mut object = json!({"kind": kind.name(), "apiVersion": kind.api_version(),
        "metadata": {"resourceVersion": version.to_string()}});
    if ends_initial {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    // Fields that every object of the kind has, since they are not optional in its type.
    let required = match kind {
        Kind::Service => json!({"spec": {}, "status": {"loadBalancer": {}}}),
        Kind::Pod => json!({"spec": {"containers": null}, "status": {}}),
        Kind::Node => json!({"spec": {}, "status": {}}),
        Kind::EndpointSlice => json!({"addressType": "", "endpoints": null, "ports": null}),
        Kind::Event => json!({"involvedObject": {}}),
        Kind::Namespace | Kind::Lease => json!({}),
    };
    if let (Value::Object(object), Value::Object(required)) = (&mut object, required) {
        object.extend(required);
    }
    json!({"type": "BOOKMARK", "object": object})
}

/// How a request wants to see objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    Metadata,
    Table,
}

impl Form {
    /// The first one of the `Accept` header that there is.
    pub(super) fn wanted(request: &Request) -> Self {
        let form = |media_type: &str| {
            if media_type.contains("as=PartialObjectMetadata") {
                Some(Self::Metadata)
            } else if media_type.contains("as=Table") {
                media_type.split(';').any(|part| part.trim() == "v=v1").then_some(Self::Table)
            } else {
                Some(Self::Whole)
            }
        };
        request.accept.split(',').find_map(form).unwrap_or(Self::Whole)
    }

    /// An object in this form at a time since 1970.
    pub(super) fn show(self, kind: Kind, object: &Value, now: Duration) -> Value {
        match self {
            Self::Whole => whole(kind, object),
            Self::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
            }
            Self::Table => {
                let version = &object["metadata"]["resourceVersion"];
                table(kind, [object], &json!({"resourceVersion": version}), now)
            }
        }
    }
}

/// An object that says what it is.
pub(super) fn whole(kind: Kind, object: &Value) -> Value {
    let mut shown = json!({"kind": kind.name(), "apiVersion": kind.api_version()});
    if let (Value::Object(shown), Value::Object(object)) = (&mut shown, object) {
        shown.extend(object.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    shown
}

/// A place in a list.
struct Place {
    /// The version that the list shows, 0 for the newest.
    version: u64,
    /// How many objects come after it in that version: counted once, and not again for every page.
    left: usize,
    /// The namespace and name of the last object that was given out.
    namespace: String,
    name: String,
}

impl Place {
    fn token(&self) -> String {
        let Self { version, left, namespace, name } = self;
        format!("{version}.{left}.{namespace}.{name}")
    }

    fn read(token: &str) -> Option<Self> {
        // Names of namespaces have no dots.
        let [version, left, namespace, name] = token.splitn(4, '.').collect::<Vec<_>>().try_into().ok()?;
        let (version, left) = (version.parse().ok()?, left.parse().ok()?);
        Some(Self { version, left, namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

/// The objects from a key on, as they were when some of them were different.
fn objects_at<'a>(
    objects: &'a BTreeMap<Key, Arc<Value>>,
    former: &'a BTreeMap<Key, Option<Arc<Value>>>,
    from: Key,
) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
    let mut same = objects.range(from.clone()..).filter(|(key, _)| !former.contains_key(*key)).peekable();
    let mut different =
        former.range(from..).filter_map(|(key, object)| Some((key, object.as_ref()?))).peekable();
    std::iter::from_fn(move || match (same.peek(), different.peek()) {
        (Some((one, _)), Some((other, _))) if other < one => different.next(),
        (None, Some(_)) => different.next(),
        (Some(_), Some(_) | None) | (None, None) => same.next(),
    })
}

fn version_of(text: &str) -> Result<u64, Refusal> {
    if text.is_empty() { Ok(0) } else { text.parse().map_err(|_| Refusal::bad_version(text)) }
}

impl Cluster {
    fn selector(request: &Request, kind: Kind) -> Result<Selector, Refusal> {
        Selector::parse(kind, request.parameter("labelSelector"), request.parameter("fieldSelector"))
    }

    /// A list, or a page of one. `newest` is the version that counts as the current one.
    pub(super) fn list(
        &self,
        request: &Request,
        kind: Kind,
        namespace: Option<&str>,
        newest: u64,
    ) -> Result<Value, Refusal> {
        let selector = Self::selector(request, kind)?;
        let asked = version_of(request.parameter("resourceVersion"))?;
        if asked > self.version {
            return Err(Refusal::too_large_version(asked, self.version));
        }
        let mut version = newest;
        if request.parameter("resourceVersionMatch") == "Exact" {
            if asked < self.oldest() {
                return Err(Refusal::expired("The resourceVersion for the provided list is too old."));
            }
            version = asked;
        }
        let continuation = request.parameter("continue");
        let mut after = None;
        let mut known_left = None;
        if !continuation.is_empty() {
            let bad = || Refusal::bad_request("continue key is not valid");
            let place = Place::read(continuation).ok_or_else(bad)?;
            let at = place.version;
            if at != 0 && at < self.oldest() {
                return Err(Refusal::continue_expired(Place { version: 0, ..place }.token()));
            }
            version = if at == 0 { newest } else { at.min(self.version) };
            known_left = (at != 0).then_some(place.left);
            after = Some((kind, place.namespace, place.name));
        }
        let start = (kind, namespace.unwrap_or_default().to_owned(), String::new());
        let from = after.as_ref().map_or(start, Clone::clone);
        let former = self.undone(version);
        let mut rest = objects_at(&self.objects, &former, from)
            .take_while(|((of, within, _), _)| {
                *of == kind && namespace.is_none_or(|namespace| namespace == within)
            })
            .filter(|(key, object)| Some(*key) != after.as_ref() && selector.matches(object));
        let limit = request.parameter("limit").parse().ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let page: Vec<(&Key, &Arc<Value>)> = rest.by_ref().take(limit).collect();
        // Only a list without selectors says how many more there are.
        let left = match known_left {
            Some(left) if selector.is_empty() => left.saturating_sub(page.len()),
            None if selector.is_empty() => rest.count(),
            Some(_) | None => rest.take(1).count(),
        };
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if let Some(((_, namespace, name), _)) = page.last().filter(|_| left > 0) {
            let place = Place { version, left, namespace: namespace.clone(), name: name.clone() };
            metadata["continue"] = json!(place.token());
            if selector.is_empty() {
                metadata["remainingItemCount"] = json!(left);
            }
        }
        let objects = page.iter().map(|(_, object)| object.as_ref());
        let (name, group, items): (_, _, Vec<Value>) = match Form::wanted(request) {
            Form::Table => return Ok(table(kind, objects, &metadata, self.now)),
            Form::Metadata => {
                let items = objects.map(|object| Form::Metadata.show(kind, object, self.now)).collect();
                ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned(), items)
            }
            Form::Whole => (format!("{}List", kind.name()), kind.api_version(), objects.cloned().collect()),
        };
        Ok(json!({"kind": name, "apiVersion": group, "metadata": metadata, "items": items}))
    }

    /// The answer to a read of a list or an object as it was so many versions ago, or as far back as is remembered; `None` to
    /// any other request.
    #[must_use]
    pub fn stale(&self, request: &Request, versions: u64) -> Option<Answer> {
        let version = self.version.saturating_sub(versions).max(self.oldest());
        let answer = match super::kind::parse(&request.path)? {
            Target::Collection { kind, namespace } => self.list(request, kind, namespace.as_deref(), version),
            Target::Object { kind, namespace, name } | Target::Status { kind, namespace, name } => {
                let key = (kind, namespace, name);
                let former = self.undone(version).remove(&key);
                let object = former.unwrap_or_else(|| self.objects.get(&key).cloned());
                let object = object.ok_or_else(|| Refusal::not_found(kind, &key.2));
                object.map(|object| Form::wanted(request).show(kind, &object, self.now))
            }
            Target::Discovery(_) | Target::Binding { .. } => return None,
        };
        Some(match answer {
            Ok(body) => Answer::Body { status: 200, body },
            Err(refusal) => Answer::Body { status: refusal.code, body: refusal.body() },
        })
    }

    pub(super) fn watch(
        &self,
        request: &Request,
        kind: Kind,
        namespace: Option<String>,
    ) -> Result<Watch, Refusal> {
        let asked = version_of(request.parameter("resourceVersion"))?;
        if asked > self.version {
            return Err(Refusal::too_large_version(asked, self.version));
        }
        let mut watch = Watch {
            kind,
            namespace,
            selector: Self::selector(request, kind)?,
            form: Form::wanted(request),
            version: asked,
            waiting: Vec::new(),
            has_ended: false,
            wants_bookmarks: request.is_set("allowWatchBookmarks"),
            timeout_seconds: request.parameter("timeoutSeconds").parse().ok(),
        };
        let is_streaming_list = request.is_set("sendInitialEvents");
        if asked == 0 || is_streaming_list {
            let about = self
                .of_kind(kind)
                .filter(|(key, object)| watch.is_about(key) && watch.selector.matches(object));
            watch.waiting = about.map(|(_, object)| watch.event("ADDED", object, self.now)).collect();
            watch.version = self.version;
            if is_streaming_list && watch.wants_bookmarks {
                watch.waiting.push(bookmark(kind, self.version, true));
            }
        } else if asked < self.oldest() {
            watch.expire(self.version);
        }
        Ok(watch)
    }

    /// What a watch has to say now.
    pub fn poll(&self, watch: &mut Watch) -> Vec<Value> {
        let mut events = std::mem::take(&mut watch.waiting);
        if watch.has_ended {
            return events;
        }
        if watch.version < self.oldest() {
            // It fell behind what is remembered.
            watch.expire(self.version);
            events.append(&mut watch.waiting);
            return events;
        }
        let changes = self.changes_since(watch.version);
        events.extend(changes.filter_map(|(change, version)| watch.told(change, version, self.now)));
        watch.version = self.version;
        events
    }
}
