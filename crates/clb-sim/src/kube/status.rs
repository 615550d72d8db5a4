//! Refusals, as the API server words them.

use serde_json::{Value, json};

use super::kind::Kind;

/// A refusal. It changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: u16,
    reason: &'static str,
    message: String,
    details: Option<Value>,
    continuation: Option<String>,
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    reason: &'static str,
    message: String,
    field: String,
}

impl Cause {
    pub(super) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self { reason: "FieldValueInvalid", message, field: field.into() }
    }

    pub(super) fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        Self { reason: "FieldValueNotSupported", message, field: field.into() }
    }

    pub(super) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self { reason: "FieldValueForbidden", message: format!("Forbidden: {why}"), field: field.into() }
    }

    pub(super) fn required(field: impl Into<String>, why: &str) -> Self {
        let message =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self { reason: "FieldValueRequired", message, field: field.into() }
    }
}

/// The part of `details` that names a resource.
fn names(kind: Kind, name: &str) -> Value {
    let mut details = json!({"name": name});
    if !kind.group().is_empty() {
        details["group"] = json!(kind.group());
    }
    details["kind"] = json!(kind.resource());
    details
}

impl Refusal {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continuation: None }
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    pub(super) fn not_found(kind: Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.qualified());
        Self::new(404, "NotFound", message).with_details(names(kind, name))
    }

    pub(super) fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
    }

    pub(super) fn already_exists(kind: Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.qualified());
        Self::new(409, "AlreadyExists", message).with_details(names(kind, name))
    }

    pub(super) fn modified(kind: Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.qualified());
        Self::new(409, "Conflict", message).with_details(names(kind, name))
    }

    /// A new object in a namespace that is going: the words of the admission plugin `NamespaceLifecycle`.
    pub(super) fn namespace_terminating(kind: Kind, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let message = format!("{} {name:?} is forbidden: {why}", kind.qualified());
        let mut details = names(kind, name);
        details["causes"] = json!([{"reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"), "field": "metadata.namespace"}]);
        Self::new(403, "Forbidden", message).with_details(details)
    }

    /// A conflict with a precondition, which names the kind rather than the resource.
    pub(super) fn precondition(kind: Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.name());
        Self::new(409, "Conflict", message).with_details(json!({"name": name, "kind": kind.name()}))
    }

    pub(super) fn already_bound(name: &str, node: &str) -> Self {
        let why = format!("pod {name} is already assigned to node {node:?}");
        let message = format!("Operation cannot be fulfilled on pods/binding {name:?}: {why}");
        Self::new(409, "Conflict", message).with_details(json!({"name": name, "kind": "pods/binding"}))
    }

    pub(super) fn invalid(kind: Kind, name: &str, causes: &[Cause]) -> Self {
        let mut said: Vec<String> = Vec::new();
        for Cause { message, field, .. } in causes {
            let one = format!("{field}: {message}");
            if !said.contains(&one) {
                said.push(one);
            }
        }
        let said = if let [one] = &said[..] { one.clone() } else { format!("[{}]", said.join(", ")) };
        let causes: Vec<Value> = causes
            .iter()
            .map(|Cause { reason, message, field }| json!({"reason": reason, "message": message, "field": field}))
            .collect();
        let mut details = json!({"name": name});
        if !kind.group().is_empty() {
            details["group"] = json!(kind.group());
        }
        details["kind"] = json!(kind.name());
        details["causes"] = json!(causes);
        Self::new(422, "Invalid", format!("{} {name:?} is invalid: {said}", kind.name()))
            .with_details(details)
    }

    /// A configuration that is applied by nobody.
    pub(super) fn no_field_manager() -> Self {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        let message = format!("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: {}", cause.message);
        let causes = json!([{"reason": cause.reason, "message": cause.message, "field": cause.field}]);
        Self::new(422, "Invalid", message)
            .with_details(json!({"group": "meta.k8s.io", "kind": "PatchOptions", "causes": causes}))
    }

    /// Fields that others own, each with its owner.
    pub(super) fn apply_conflict(kind: Kind, conflicts: &[(String, String)]) -> Self {
        let version = kind.api_version();
        let with = |owner: &str| format!("conflict with {owner:?} using {version}");
        let said = match conflicts {
            [(owner, field)] => format!("1 conflict: {}: {field}", with(owner)),
            [..] => {
                let mut said = format!("{} conflicts: ", conflicts.len());
                let mut last = None;
                for (owner, field) in conflicts {
                    if last.replace(owner) != Some(owner) {
                        said.push_str(&format!("conflicts with {owner:?} using {version}:\n"));
                    }
                    said.push_str(&format!("- {field}\n"));
                }
                said.trim_end().to_owned()
            }
        };
        let cause = |(owner, field): &(String, String)| json!({"reason": "FieldManagerConflict", "message": with(owner), "field": field});
        let causes: Vec<Value> = conflicts.iter().map(cause).collect();
        Self::new(409, "Conflict", format!("Apply failed with {said}"))
            .with_details(json!({"causes": causes}))
    }

    /// A patch that cannot be applied.
    pub(super) fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", message).with_details(json!({}))
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_details(json!({}))
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn unsupported_media_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_details(json!({}))
    }

    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A page of a list that is no longer known; `token` leads to what is left as it is now.
    pub(super) fn continue_expired(token: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                       new list without the continue parameter, or use the continue token in this response to retrieve \
                       the remainder of the results. Continuing with the provided token results in an inconsistent list \
                       - objects that were created, modified, or deleted between the time the first chunk was returned \
                       and now may show up in the list.";
        Self { continuation: Some(token), ..Self::expired(message) }
    }

    pub(super) fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        Self::new(504, "Timeout", message).with_details(json!({"causes": [cause], "retryAfterSeconds": 1}))
    }

    pub(super) fn bad_version(text: &str) -> Self {
        let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        Self::new(500, "", format!("resourceVersion: Invalid value: {text:?}: {why}"))
    }

    /// A request that this simulator has no answer for; it must not pass for one that the API server refuses.
    pub(super) fn not_modelled(what: impl std::fmt::Display) -> Self {
        Self::new(501, "NotModelled", format!("the simulator does not model {what}"))
    }

    /// The `Status` object.
    pub(super) fn body(&self) -> Value {
        let mut metadata = json!({});
        if let Some(token) = &self.continuation {
            metadata["continue"] = json!(token);
        }
        let mut body = json!({"kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message});
        if !self.reason.is_empty() {
            body["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            body["details"] = details.clone();
        }
        body["code"] = json!(self.code);
        body
    }
}

/// What a deletion is answered with whose object is not.
pub(super) fn deleted(kind: Kind, name: &str, uid: &Value) -> Value {
    let mut details = names(kind, name);
    details["uid"] = uid.clone();
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
