//! Conditions in the status of an object.

use serde_json::{Value, json};

/// What a condition says, but not since when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) status: String,
    /// Empty if there is none.
    pub(super) reason: String,
    /// Empty if there is none.
    pub(super) message: String,
}

impl Said {
    pub(super) fn new(status: &str, reason: &str, message: impl Into<String>) -> Self {
        Self { status: status.to_owned(), reason: reason.to_owned(), message: message.into() }
    }

    pub(super) fn of(condition: &Value) -> Self {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        Self::new(text("status"), text("reason"), text("message"))
    }
}

/// The condition of a type, if there is one.
pub(super) fn condition<'a>(object: &'a Value, of: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == of)
}

/// Whether there is a condition of a type, and it says `True`.
pub(super) fn is_true(object: &Value, of: &str) -> bool {
    condition(object, of).is_some_and(|condition| condition["status"] == "True")
}

/// Makes a condition say this. `now` is when it begins to have this status, unless it has it already.
pub(super) fn set_condition(object: &mut Value, of: &str, said: &Said, now: &str) {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Value::Array(conditions) = &mut object["status"]["conditions"] else { return };
    let at = conditions.iter().position(|condition| condition["type"] == of).unwrap_or_else(|| {
        conditions.push(json!({"type": of}));
        conditions.len() - 1
    });
    let condition = &mut conditions[at];
    if condition["status"] != said.status.as_str() {
        condition["status"] = json!(said.status);
        condition["lastTransitionTime"] = json!(now);
    }
    for (field, text) in [("reason", &said.reason), ("message", &said.message)] {
        if !text.is_empty() {
            condition[field] = json!(text);
        } else if let Some(condition) = condition.as_object_mut() {
            condition.remove(field);
        }
    }
}
