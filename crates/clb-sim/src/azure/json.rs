//! Changes of JSON values.

use serde_json::{Map, Value};

/// Adds what is not there, in whatever depth; a list stays as it is.
pub(crate) fn fill(value: &mut Value, defaults: Value) {
    if let Value::Object(map) = value {
        fill_object(map, defaults);
    }
}

/// The same of what is known to be an object.
pub(crate) fn fill_object(map: &mut Map<String, Value>, defaults: Value) {
    let Value::Object(defaults) = defaults else { return };
    for (name, default) in defaults {
        match map.get_mut(&name) {
            Some(given) if !given.is_null() => fill(given, default),
            Some(_) | None => {
                map.insert(name, default);
            }
        }
    }
}

/// Changes a value as a JSON merge patch says (RFC 7396).
pub(crate) fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    for (name, change) in patch {
        if change.is_null() {
            if let Some(map) = value.as_object_mut() {
                map.remove(name);
            }
        } else {
            merge(&mut value[name.as_str()], change);
        }
    }
}

/// Removes what is only read.
pub(crate) fn without(map: &mut Map<String, Value>, names: &[&str]) {
    map.retain(|given, _| !names.iter().any(|name| name.eq_ignore_ascii_case(given)));
}
