//! Creating, changing and deleting objects.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::apply::after_update;
use super::cluster::{Cluster, Key, Request, timestamp};
use super::kind::Kind;
use super::list::whole;
use super::pods::is_terminal;
use super::status::{Refusal, deleted};
use super::{patch, validate};

/// How many seconds a pod is given to stop, unless it or somebody says otherwise.
const GRACE_SECONDS: u64 = 30;
/// What of an object's metadata nobody can change.
const OWN_METADATA: [&str; 6] =
    ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// Who an object that is created is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// A new one.
    New,
    /// The one that it says it is, or else the one that has its name, in the state that it says it is in.
    Kept,
}

/// Who owns the fields of a new form of an object.
pub(super) enum Managed<'a> {
    /// What changes belongs to this manager from now on.
    By(&'a str),
    /// As `managedFields` says it here.
    As(Value),
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// How many seconds a pod is given to stop. Only one that was given to a node and has not ended has somebody who could need
/// time: `CheckGracefulDelete` in Kubernetes' `pkg/registry/core/pod`.
fn grace(pod: &Value, asked: Option<u64>) -> u64 {
    if text(pod, "/spec/nodeName").is_empty() || is_terminal(pod) {
        return 0;
    }
    let own = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64);
    asked.or(own).unwrap_or(GRACE_SECONDS)
}

fn has_finalizers(object: &Value) -> bool {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

/// An object of a request: a map, with metadata, without what only answers have.
pub(super) fn read(kind: Kind, mut body: Value) -> Result<Value, Refusal> {
    let Value::Object(fields) = &body else {
        return Err(Refusal::bad_request("the object provided is unrecognized (must be of type Object)"));
    };
    let said = fields.get("kind").and_then(Value::as_str).unwrap_or(kind.name());
    let version =
        fields.get("apiVersion").and_then(Value::as_str).map(str::to_owned).unwrap_or(kind.api_version());
    if said != kind.name() || version != kind.api_version() {
        let message = format!("{said} in version {version:?} cannot be handled as a {}", kind.name());
        return Err(Refusal::bad_request(message));
    }
    check_types(kind, &body)?;
    if let Value::Object(fields) = &mut body {
        fields.remove("kind");
        fields.remove("apiVersion");
        fields.entry("metadata").or_insert_with(|| json!({}));
    }
    let Value::Object(metadata) = &mut body["metadata"] else {
        return Err(Refusal::bad_request("the metadata of an object is an object"));
    };
    metadata.remove("managedFields");
    metadata.retain(|_, value| !value.is_null());
    for list in ["finalizers", "ownerReferences"] {
        if metadata.get(list).and_then(Value::as_array).is_some_and(Vec::is_empty) {
            metadata.remove(list);
        }
    }
    for map in ["labels", "annotations"] {
        if metadata.get(map).and_then(Value::as_object).is_some_and(Map::is_empty) {
            metadata.remove(map);
        }
    }
    Ok(body)
}

/// Refuses a body whose fields are not of the types that they must be.
fn check_types(kind: Kind, body: &Value) -> Result<(), Refusal> {
    fn decode<K: DeserializeOwned>(body: &Value) -> Result<(), serde_json::Error> {
        K::deserialize(body).map(drop)
    }
    let typed = match kind {
        Kind::Namespace => decode::<Namespace>,
        Kind::Node => decode::<Node>,
        Kind::Pod => decode::<Pod>,
        Kind::Service => decode::<Service>,
        Kind::EndpointSlice => decode::<EndpointSlice>,
        Kind::Event => decode::<Event>,
        Kind::Lease => decode::<Lease>,
    };
    typed(body).map_err(|error| unreadable(kind, &error.to_string()))?;
    check_micro_times(kind, body)
}

/// Refuses times that have anything but six digits of a fraction where the real server wants microseconds, in its words. What
/// is before the fraction is known to be a time.
fn check_micro_times(kind: Kind, body: &Value) -> Result<(), Refusal> {
    let times: &[&str] = match kind {
        Kind::Lease => &["/spec/acquireTime", "/spec/renewTime"],
        Kind::Event => &["/eventTime", "/series/lastObservedTime"],
        Kind::Namespace | Kind::Node | Kind::Pod | Kind::Service | Kind::EndpointSlice => &[],
    };
    let seconds = "2006-01-02T15:04:05";
    for time in times.iter().filter_map(|pointer| body.pointer(pointer)?.as_str()) {
        let rest = time.get(seconds.len()..).unwrap_or_default();
        let digits = rest
            .get(1..7)
            .filter(|digits| rest.starts_with('.') && digits.bytes().all(|it| it.is_ascii_digit()));
        let zone = digits.and_then(|_| rest.get(7..));
        let (rest, wanted) = match zone {
            None => (rest, ".000000"),
            Some(zone) if zone.starts_with(['Z', '+', '-']) => continue,
            Some(zone) => (zone, "Z07:00"),
        };
        let why = format!(
            "parsing time {time:?} as \"{seconds}.000000Z07:00\": cannot parse {rest:?} as {wanted:?}"
        );
        return Err(unreadable(kind, &why));
    }
    Ok(())
}

/// Refuses a body with fields that its kind does not have, if the request wants that.
pub(super) fn check_fields(kind: Kind, request: &Request, body: &Value) -> Result<(), Refusal> {
    fn known<K: DeserializeOwned + Serialize>(body: &Value) -> Option<Value> {
        serde_json::to_value(K::deserialize(body).ok()?).ok()
    }
    if request.parameter("fieldValidation") != "Strict" {
        return Ok(());
    }
    let known = match kind {
        Kind::Namespace => known::<Namespace>,
        Kind::Node => known::<Node>,
        Kind::Pod => known::<Pod>,
        Kind::Service => known::<Service>,
        Kind::EndpointSlice => known::<EndpointSlice>,
        Kind::Event => known::<Event>,
        Kind::Lease => known::<Lease>,
    };
    let mut unknown = Vec::new();
    if let Some(known) = known(body) {
        compare("", body, &known, &mut unknown);
    }
    if unknown.is_empty() {
        return Ok(());
    }
    Err(unreadable(kind, &format!("strict decoding error: {}", unknown.join(", "))))
}

/// Collects the fields that are in what was said and not in what is known of it.
fn compare(path: &str, said: &Value, known: &Value, unknown: &mut Vec<String>) {
    match (said, known) {
        (Value::Object(said), Value::Object(known)) => {
            for (name, value) in said.iter().filter(|(_, value)| !value.is_null()) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match known.get(name) {
                    Some(known) => compare(&path, value, known, unknown),
                    None => unknown.push(format!("unknown field {path:?}")),
                }
            }
        }
        (Value::Array(said), Value::Array(known)) => {
            for (at, (said, known)) in said.iter().zip(known).enumerate() {
                compare(&format!("{path}[{at}]"), said, known, unknown);
            }
        }
        // What is no map and no list has no fields, and the types were checked before.
        (_, _) => {}
    }
}

fn unreadable(kind: Kind, why: &str) -> Refusal {
    let name = kind.name();
    Refusal::bad_request(format!("{name} in version \"v1\" cannot be handled as a {name}: {why}"))
}

impl Cluster {
    /// Creates an object, in the namespace of the path or, without one, in the one that it names.
    pub(super) fn create(
        &mut self,
        kind: Kind,
        namespace: Option<&str>,
        body: &Value,
        is_dry: bool,
    ) -> Result<Value, Refusal> {
        let created =
            self.create_object(kind, namespace, read(kind, body.clone())?, Identity::New, is_dry)?;
        Ok(whole(kind, &created))
    }

    /// Creates an object that was read, as [`Cluster::create`].
    pub(super) fn create_object(
        &mut self,
        kind: Kind,
        namespace: Option<&str>,
        mut object: Value,
        identity: Identity,
        is_dry: bool,
    ) -> Result<Arc<Value>, Refusal> {
        let own = text(&object, "/metadata/namespace").to_owned();
        let namespace = namespace.unwrap_or(&own).to_owned();
        if kind.is_namespaced() {
            if !own.is_empty() && own != namespace {
                let message =
                    "the namespace of the provided object does not match the namespace sent on the request";
                return Err(Refusal::bad_request(message));
            }
            let home = self.get(&(Kind::Namespace, String::new(), namespace.clone()))?;
            if home.pointer("/metadata/deletionTimestamp").is_some() {
                let names = ["/metadata/name", "/metadata/generateName"].map(|name| text(&object, name));
                let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
                return Err(Refusal::namespace_terminating(kind, name, &namespace));
            }
            object["metadata"]["namespace"] = json!(namespace);
        }
        let mut name = text(&object, "/metadata/name").to_owned();
        let prefix = text(&object, "/metadata/generateName");
        self.counter += 1;
        if name.is_empty() && !prefix.is_empty() {
            name = format!("{prefix}{:05x}", self.counter);
            object["metadata"]["name"] = json!(name);
        }
        validate::families(kind, &name, &object)?;
        validate::name(kind, &name)?;
        let key = (kind, namespace, name);
        let is_kept = identity == Identity::Kept;
        let former = self.objects.get(&key).cloned();
        if former.is_some() && !is_kept {
            return Err(Refusal::already_exists(kind, &key.2));
        }
        let metadata = &mut object["metadata"];
        let own =
            ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];
        for field in own {
            match former.as_ref().map(|former| &former["metadata"][field]).filter(|held| !held.is_null()) {
                _ if is_kept && !metadata[field].is_null() => {}
                Some(held) => metadata[field] = held.clone(),
                None => drop(metadata.as_object_mut().and_then(|metadata| metadata.remove(field))),
            }
        }
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("00000000-0000-4000-8000-{:012x}", self.counter));
        }
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = json!(self.timestamp(Duration::ZERO));
        }
        match &former {
            Some(former) => metadata["resourceVersion"] = former["metadata"]["resourceVersion"].clone(),
            None => drop(metadata.as_object_mut().and_then(|metadata| metadata.remove("resourceVersion"))),
        }
        if kind.has_status() && kind != Kind::Node && !is_kept {
            object["status"] = Value::Null;
        }
        let status = Some(object["status"].clone()).filter(|status| is_kept && status.is_object());
        let generation =
            Some(object["metadata"]["generation"].clone()).filter(|held| is_kept && held.is_u64());
        self.set_defaults(kind, &mut object, former.as_deref());
        if let Some(status) = status {
            object["status"] = status;
        }
        if let Some(generation) = generation {
            object["metadata"]["generation"] = generation;
        }
        validate::object(&key, &object, if is_kept { None } else { former.as_deref() })?;
        match former {
            Some(former) if *former == object => Ok(former),
            Some(_) | None => Ok(if is_dry { Arc::new(object) } else { self.commit(key, object, false) }),
        }
    }

    pub(super) fn replace(
        &mut self,
        key: &Key,
        request: &Request,
        is_status: bool,
        is_dry: bool,
    ) -> Result<(u16, Value), Refusal> {
        let (kind, namespace, name) = key;
        let old = self.objects.get(key).cloned();
        if old.is_none() && (is_status || !kind.is_created_by_put()) {
            return Err(Refusal::not_found(*kind, name));
        }
        check_fields(*kind, request, &request.body)?;
        let new = read(*kind, request.body.clone())?;
        if text(&new, "/metadata/name") != name {
            let message = format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                text(&new, "/metadata/name")
            );
            return Err(Refusal::bad_request(message));
        }
        let (uid, held) = (text(&new, "/metadata/uid"), old.as_ref().map(|old| text(old, "/metadata/uid")));
        let held = held.unwrap_or_default();
        if !uid.is_empty() && uid != held {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {held}");
            return Err(Refusal::precondition(*kind, name, &why));
        }
        let Some(old) = old else {
            let namespace = kind.is_namespaced().then_some(namespace.as_str());
            let created = self.create_object(*kind, namespace, new, Identity::New, is_dry)?;
            return Ok((201, whole(*kind, &created)));
        };
        if *kind == Kind::Lease && text(&new, "/metadata/resourceVersion").is_empty() {
            return Err(validate::version_missing(*kind, name));
        }
        let managed = Managed::By(request.parameter("fieldManager"));
        Ok((200, self.update(key, &old, new, managed, (is_status, is_dry))?))
    }

    pub(super) fn patch(
        &mut self,
        key: &Key,
        request: &Request,
        is_status: bool,
        is_dry: bool,
    ) -> Result<(u16, Value), Refusal> {
        if patch::is_apply(&request.content_type) {
            return self.apply(key, request, is_status, is_dry);
        }
        let old = self.get(key)?.clone();
        let whole = whole(key.0, &old);
        let patched = patch::apply(&request.content_type, &request.body, whole)?;
        check_fields(key.0, request, &patched)?;
        let new = read(key.0, patched)?;
        let managed = Managed::By(request.parameter("fieldManager"));
        Ok((200, self.update(key, &old, new, managed, (is_status, is_dry))?))
    }

    /// Takes a new form of an object: all but the status, or the status only.
    pub(super) fn update(
        &mut self,
        key: &Key,
        old: &Arc<Value>,
        mut new: Value,
        managed: Managed<'_>,
        (is_status, is_dry): (bool, bool),
    ) -> Result<Value, Refusal> {
        let (kind, _, name) = key;
        let version = text(&new, "/metadata/resourceVersion");
        if !version.is_empty() && version != text(old, "/metadata/resourceVersion") {
            return Err(Refusal::modified(*kind, name));
        }
        validate::identity(key, &new, old)?;
        if is_status {
            let status = new["status"].take();
            new = old.as_ref().clone();
            new["status"] = status;
        } else if kind.has_status() {
            new["status"] = old["status"].clone();
        }
        for field in OWN_METADATA {
            let former = old["metadata"].get(field).cloned();
            if let Some(metadata) = new["metadata"].as_object_mut() {
                match former {
                    Some(value) => drop(metadata.insert(field.to_owned(), value)),
                    None => drop(metadata.remove(field)),
                }
            }
        }
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        validate::families(*kind, name, &new)?;
        self.set_defaults(*kind, &mut new, Some(old));
        validate::object(key, &new, Some(old))?;
        let managed = match managed {
            Managed::By(manager) => {
                after_update(*kind, old, &new, (manager, is_status), &self.timestamp(Duration::ZERO))
            }
            Managed::As(managed) => managed,
        };
        if let Some(metadata) = new["metadata"].as_object_mut() {
            metadata.remove("managedFields");
            if !managed.is_null() {
                metadata.insert("managedFields".to_owned(), managed);
            }
        }
        let is_over = new.pointer("/metadata/deletionTimestamp").is_some()
            && new.pointer("/metadata/deletionGracePeriodSeconds") == Some(&json!(0))
            && !has_finalizers(&new)
            && (*kind != Kind::Namespace || self.inside(name).next().is_none());
        let result = if is_dry || (new == **old && !is_over) {
            Arc::new(new)
        } else if is_over {
            self.remove(key.clone(), new)
        } else {
            self.commit(key.clone(), new, false)
        };
        Ok(whole(*kind, &result))
    }

    pub(super) fn delete(&mut self, key: &Key, request: &Request, is_dry: bool) -> Result<Value, Refusal> {
        let (kind, _, name) = key;
        let old = self.get(key)?.clone();
        let options = &request.body;
        let record = |field: &str, pointer: &str| {
            let wanted = options.pointer(&format!("/preconditions/{field}")).and_then(Value::as_str)?;
            let held = text(&old, pointer);
            (wanted != held).then(|| (wanted.to_owned(), held.to_owned()))
        };
        if let Some((wanted, held)) = record("uid", "/metadata/uid") {
            let why = format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({held}). The object might have \
                 been deleted and then recreated"
            );
            return Err(Refusal::precondition(*kind, name, &why));
        }
        if let Some((wanted, held)) = record("resourceVersion", "/metadata/resourceVersion") {
            let why = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({held}). \
                 The object might have been modified"
            );
            return Err(Refusal::precondition(*kind, name, &why));
        }
        let asked = options.get("gracePeriodSeconds").and_then(Value::as_u64);
        let asked = asked.or_else(|| request.parameter("gracePeriodSeconds").parse().ok());
        let held = old.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64);
        let grace = match held {
            _ if *kind != Kind::Pod => 0,
            Some(held) => asked.unwrap_or(held),
            None => grace(&old, asked),
        };
        if is_dry {
            return Ok(whole(*kind, &old));
        }
        if *kind == Kind::Namespace {
            return Ok(self.delete_namespace(key, &old));
        }
        if grace == 0 && !has_finalizers(&old) {
            let mut last = old.as_ref().clone();
            if *kind == Kind::Pod {
                self.set_deletion(&mut last, 0);
            }
            let removed = self.remove(key.clone(), last);
            return Ok(match kind {
                Kind::Pod => whole(*kind, &removed),
                Kind::Service => whole(*kind, &old),
                Kind::Node | Kind::EndpointSlice | Kind::Event | Kind::Lease | Kind::Namespace => {
                    deleted(*kind, name, &old["metadata"]["uid"])
                }
            });
        }
        if held.is_some_and(|held| held <= grace) {
            return Ok(whole(*kind, &old));
        }
        let marked = self.mark(key, &old, grace);
        Ok(whole(*kind, &marked))
    }

    /// Deletes what a list with the request's selectors would show, and answers with that list.
    pub(super) fn delete_all(
        &mut self,
        request: &Request,
        kind: Kind,
        namespace: Option<&str>,
        is_dry: bool,
    ) -> Result<Value, Refusal> {
        // The real server has no such verb for these.
        if matches!(kind, Kind::Namespace) || (kind.is_namespaced() && namespace.is_none()) {
            return Err(Refusal::method_not_allowed());
        }
        let listed = self.list(request, kind, namespace, self.version)?;
        for item in listed["items"].as_array().into_iter().flatten() {
            let (within, name) = (text(item, "/metadata/namespace"), text(item, "/metadata/name"));
            self.delete(&(kind, within.to_owned(), name.to_owned()), request, is_dry)?;
        }
        Ok(listed)
    }

    fn mark(&mut self, key: &Key, old: &Value, grace: u64) -> Arc<Value> {
        let mut new = old.clone();
        self.set_deletion(&mut new, grace);
        self.commit(key.clone(), new, false)
    }

    /// Gives an object so many seconds from when its deletion was asked for first.
    pub(super) fn set_deletion(&self, object: &mut Value, grace: u64) {
        let metadata = &mut object["metadata"];
        let ends = metadata["deletionTimestamp"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        let asked = ends.zip(metadata["deletionGracePeriodSeconds"].as_u64()).and_then(|(ends, grace)| {
            let ends = u64::try_from(ends.as_second()).ok()?;
            Some(Duration::from_secs(ends.saturating_sub(grace)))
        });
        let ends = asked.unwrap_or(self.now) + Duration::from_secs(grace);
        metadata["deletionTimestamp"] = json!(timestamp(ends));
        metadata["deletionGracePeriodSeconds"] = json!(grace);
    }

    /// Takes an object away, and its namespace with it if that is only waiting to be empty.
    pub(super) fn remove(&mut self, key: Key, last: Value) -> Arc<Value> {
        let namespace = key.1.clone();
        let removed = self.commit(key, last, true);
        self.end_namespace((Kind::Namespace, String::new(), namespace));
        removed
    }

    /// Takes a namespace away that is going, is empty and is not held.
    fn end_namespace(&mut self, key: Key) {
        if let Some(waiting) = self.objects.get(&key).cloned()
            && waiting.pointer("/metadata/deletionTimestamp").is_some()
            && !has_finalizers(&waiting)
            && self.inside(&key.2).next().is_none()
        {
            self.commit(key, waiting.as_ref().clone(), true);
        }
    }

    /// What is in a namespace.
    fn inside(&self, namespace: &str) -> impl Iterator<Item = &Key> {
        Kind::ALL.into_iter().filter(|kind| kind.is_namespaced()).flat_map(move |kind| {
            let from = (kind, namespace.to_owned(), String::new());
            let keys = self.objects.range(from..).map(|(key, _)| key);
            keys.take_while(move |(of, within, _)| *of == kind && within == namespace)
        })
    }

    /// A namespace goes when all that is in it has gone.
    fn delete_namespace(&mut self, key: &Key, old: &Arc<Value>) -> Value {
        if old.pointer("/metadata/deletionTimestamp").is_some() {
            return whole(Kind::Namespace, old);
        }
        let mut terminating = old.as_ref().clone();
        terminating["status"]["phase"] = json!("Terminating");
        let marked = self.mark(key, &terminating, 0);
        let inside: Vec<Key> = self.inside(&key.2).cloned().collect();
        for key in inside {
            // Each exists and has no preconditions.
            let _ = self.delete(&key, &Request::default(), false);
        }
        self.end_namespace(key.clone());
        whole(Kind::Namespace, &marked)
    }

    pub(super) fn bind(&mut self, namespace: String, name: String, body: &Value) -> Result<(), Refusal> {
        let key = (Kind::Pod, namespace, name);
        let mut pod = self.get(&key)?.as_ref().clone();
        let node = text(&pod, "/spec/nodeName");
        if !node.is_empty() {
            return Err(Refusal::already_bound(&key.2, node));
        }
        pod["spec"]["nodeName"] = json!(text(body, "/target/name"));
        self.commit(key, pod, false);
        Ok(())
    }
}
