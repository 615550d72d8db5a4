//! Patches: JSON Patch (RFC 6902), JSON Merge Patch (RFC 7386) and Kubernetes' strategic merge patch.

use serde_json::{Map, Value};

use super::status::Refusal;

/// Whether this media type is that of server-side apply, which is no patch of what there is.
pub(super) fn is_apply(media_type: &str) -> bool {
    matches!(media_type.split(';').next().unwrap_or_default().trim(), "application/apply-patch+yaml")
}

/// Applies a patch of this media type.
pub(super) fn apply(media_type: &str, patch: &Value, mut object: Value) -> Result<Value, Refusal> {
    match media_type.split(';').next().unwrap_or_default().trim() {
        "application/merge-patch+json" => merge(&mut object, patch),
        "application/strategic-merge-patch+json" => strategic(&mut object, patch),
        "application/json-patch+json" => {
            let operations =
                patch.as_array().ok_or_else(|| Refusal::bad_request("a JSON patch is a list"))?;
            for operation in operations {
                json_patch(&mut object, operation).ok_or_else(Refusal::unprocessable)?;
            }
        }
        _ => return Err(Refusal::unsupported_media_type()),
    }
    Ok(object)
}

/// The map that a value is, or an empty one in place of anything else.
fn take_map(value: &mut Value) -> Map<String, Value> {
    if let Value::Object(map) = value.take() { map } else { Map::new() }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    let mut map = take_map(target);
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
    *target = Value::Object(map);
}

/// Applies one operation; `None` if it cannot be.
fn json_patch(object: &mut Value, operation: &Value) -> Option<()> {
    let path = operation.get("path")?.as_str()?;
    match operation.get("op")?.as_str()? {
        "add" => add(object, path, operation.get("value")?.clone()),
        "remove" => remove(object, path).map(drop),
        "replace" => {
            *object.pointer_mut(path)? = operation.get("value")?.clone();
            Some(())
        }
        "test" => (object.pointer(path)? == operation.get("value")?).then_some(()),
        "copy" => {
            let value = object.pointer(operation.get("from")?.as_str()?)?.clone();
            add(object, path, value)
        }
        "move" => {
            let value = remove(object, operation.get("from")?.as_str()?)?;
            add(object, path, value)
        }
        _ => None,
    }
}

fn parent<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parent, key) = path.rsplit_once('/')?;
    Some((object.pointer_mut(parent)?, key.replace("~1", "/").replace("~0", "~")))
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *object = value;
        return Some(());
    }
    match parent(object, path)? {
        (Value::Object(map), key) => drop(map.insert(key, value)),
        (Value::Array(items), key) if key == "-" => items.push(value),
        (Value::Array(items), key) => {
            let at = key.parse().ok().filter(|at| *at <= items.len())?;
            items.insert(at, value);
        }
        (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => return None,
    }
    Some(())
}

fn remove(object: &mut Value, path: &str) -> Option<Value> {
    match parent(object, path)? {
        (Value::Object(map), key) => map.remove(&key),
        (Value::Array(items), key) => {
            let at = key.parse().ok().filter(|at| *at < items.len())?;
            Some(items.remove(at))
        }
        (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => None,
    }
}

/// The key by which the elements of a list are told apart; `None` where the list is replaced whole. From the patch tags of
/// the modelled types.
fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "ports" => Some("port"),
        "containers" | "initContainers" | "volumes" | "env" => Some("name"),
        "conditions" | "addresses" => Some("type"),
        "ownerReferences" => Some("uid"),
        "hostIPs" | "podIPs" => Some("ip"),
        _ => None,
    }
}

fn strategic(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if patch.get("$patch").and_then(Value::as_str) == Some("replace") {
        *target = Value::Object(
            patch
                .iter()
                .filter(|(key, _)| *key != "$patch")
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        );
        return;
    }
    let mut map = take_map(target);
    if let Some(Value::Array(kept)) = patch.get("$retainKeys") {
        map.retain(|key, _| kept.iter().any(|kept| kept == key.as_str()));
    }
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(items)), Value::Array(gone)) = (map.get_mut(list), value) {
                items.retain(|item| !gone.contains(item));
            }
        } else if key.starts_with('$') {
            // The order of elements ($setElementOrder) has no meaning in the modelled lists.
        } else if value.is_null() {
            map.remove(key);
        } else if let Value::Array(changes) = value {
            let items = map.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
            merge_list(key, items, changes);
        } else {
            strategic(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
    *target = Value::Object(map);
}

fn merge_list(name: &str, items: &mut Value, changes: &[Value]) {
    let (Value::Array(held), key) = (&mut *items, merge_key(name)) else {
        *items = Value::Array(changes.to_vec());
        return;
    };
    if name == "finalizers" {
        let added: Vec<Value> = changes.iter().filter(|change| !held.contains(change)).cloned().collect();
        held.extend(added);
        return;
    }
    let Some(key) = key.filter(|_| changes.iter().all(Value::is_object)) else {
        *items = Value::Array(changes.to_vec());
        return;
    };
    for change in changes {
        let is_it = |item: &Value| item.get(key) == change.get(key);
        if change.get("$patch").and_then(Value::as_str) == Some("delete") {
            held.retain(|item| !is_it(item));
        } else if let Some(item) = held.iter_mut().find(|item| is_it(item)) {
            strategic(item, change);
        } else {
            held.push(change.clone());
        }
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "patches are built where they are applied")]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(kind: &str, object: Value, patch: Value) -> Option<Value> {
        apply(&format!("application/{kind}"), &patch, object).ok()
    }

    #[test]
    fn a_merge_patch_merges_maps_replaces_the_rest_and_removes_by_null() {
        // The example of RFC 7386, section 3.
        let object = json!({"title": "Goodbye!", "author": {"givenName": "John", "familyName": "Doe"},
            "tags": ["example", "sample"], "content": "unchanged"});
        let patch = json!({"title": "Hello!", "phoneNumber": "+01-123-456-7890", "author": {"familyName": null},
            "tags": ["example"]});
        let expected = json!({"title": "Hello!", "author": {"givenName": "John"}, "tags": ["example"],
            "content": "unchanged", "phoneNumber": "+01-123-456-7890"});
        assert_eq!(patched("merge-patch+json", object, patch), Some(expected));
        assert_eq!(patched("merge-patch+json", json!({}), json!({"a": {"b": null}})), Some(json!({"a": {}})));
    }

    #[test]
    fn a_json_patch_is_applied_whole_or_not_at_all() {
        let object = || json!({"a": [1, 2], "m": {"x/y": 1}});
        let apply = |operations| patched("json-patch+json", object(), operations);
        let all = json!([
            {"op": "test", "path": "/a/0", "value": 1}, {"op": "add", "path": "/a/1", "value": 9},
            {"op": "add", "path": "/a/-", "value": 3}, {"op": "remove", "path": "/m/x~1y"},
            {"op": "replace", "path": "/a/0", "value": 0}, {"op": "copy", "from": "/a/1", "path": "/m/c"},
            {"op": "move", "from": "/a/3", "path": "/last"}
        ]);
        assert_eq!(apply(all), Some(json!({"a": [0, 9, 2], "m": {"c": 9}, "last": 3})));
        for refused in [
            json!([{"op": "test", "path": "/a/0", "value": 2}]),
            json!([{"op": "remove", "path": "/absent"}]),
            json!([{"op": "replace", "path": "/absent", "value": 1}]),
            json!([{"op": "add", "path": "/a/9", "value": 1}]),
            json!([{"op": "add", "path": "/a", "value": 1}, {"op": "jump", "path": "/a"}]),
            json!({}),
        ] {
            assert_eq!(apply(refused.clone()), None, "{refused}");
        }
    }

    #[test]
    fn a_strategic_patch_merges_lists_by_their_keys() {
        let object = json!({"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]},
            "metadata": {"finalizers": ["x/a", "x/b"], "labels": {"k": "v"}}});
        let patch = json!({"spec": {"ports": [{"port": 80, "name": "c"}, {"port": 81, "$patch": "delete"}, {"port": 82}],
            "$setElementOrder/ports": [{"port": 80}]},
            "metadata": {"finalizers": ["x/c"], "$deleteFromPrimitiveList/finalizers": ["x/a"], "labels": {"k": null}}});
        let expected = json!({"spec": {"ports": [{"port": 80, "name": "c"}, {"port": 82}]},
            "metadata": {"finalizers": ["x/b", "x/c"], "labels": {}}});
        assert_eq!(patched("strategic-merge-patch+json", object, patch), Some(expected));
    }
}
