//! Label and field selectors.

use serde_json::Value;

use super::kind::Kind;
use super::status::Refusal;

/// Which objects a list or a watch is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    labels: Vec<(String, Requirement)>,
    fields: Vec<(String, Requirement)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl Requirement {
    fn is_met(&self, value: Option<&str>) -> bool {
        let is_among =
            |values: &[String]| value.is_some_and(|value| values.iter().any(|wanted| wanted == value));
        match self {
            Self::In(values) => is_among(values),
            Self::NotIn(values) => !is_among(values),
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
        }
    }
}

impl Selector {
    pub(super) fn parse(kind: Kind, labels: &str, fields: &str) -> Result<Self, Refusal> {
        let labels = split(labels).map(requirement).collect::<Result<_, _>>()?;
        let fields = split(fields).map(requirement).collect::<Result<Vec<_>, _>>()?;
        if let Some((field, _)) = fields.iter().find(|(field, _)| !is_known(kind, field)) {
            return Err(Refusal::bad_request(format!("field label not supported: {field}")));
        }
        Ok(Self { labels, fields })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        self.labels
            .iter()
            .all(|(key, requirement)| requirement.is_met(labels.and_then(|labels| labels.get(key)?.as_str())))
            && self.fields.iter().all(|(field, requirement)| {
                let value = object.pointer(&format!("/{}", field.replace('.', "/"))).and_then(Value::as_str);
                // A field that is not set is empty.
                requirement.is_met(Some(value.unwrap_or_default()))
            })
    }
}

fn is_known(kind: Kind, field: &str) -> bool {
    let own: &[&str] = match kind {
        Kind::Pod => &["spec.nodeName", "spec.restartPolicy", "status.phase", "status.podIP"],
        Kind::Service => &["spec.clusterIP", "spec.type"],
        Kind::Node => &["spec.unschedulable"],
        Kind::Namespace => &["status.phase"],
        Kind::Event => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "source",
            "type",
        ],
        Kind::EndpointSlice | Kind::Lease => &[],
    };
    field == "metadata.name" || field == "metadata.namespace" || own.contains(&field)
}

/// The terms of a selector: commas within parentheses do not part them.
fn split(selector: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    selector
        .split(move |c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ',' && depth == 0
        })
        .map(str::trim)
        .filter(|term| !term.is_empty())
}

fn requirement(term: &str) -> Result<(String, Requirement), Refusal> {
    let named = |key: &str, requirement| Ok((key.trim().to_owned(), requirement));
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some((key, value)) = term.split_once("!=") {
        return named(key, Requirement::NotIn(one(value)));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return named(key, Requirement::In(one(value)));
    }
    if let Some(key) = term.strip_prefix('!') {
        return named(key, Requirement::Absent);
    }
    if let Some((head, values)) = term.strip_suffix(')').and_then(|term| term.split_once('(')) {
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        return match head.split_whitespace().collect::<Vec<_>>()[..] {
            [key, "in"] => named(key, Requirement::In(values)),
            [key, "notin"] => named(key, Requirement::NotIn(values)),
            [..] => Err(Refusal::bad_request(format!("unable to parse requirement: {term:?}"))),
        };
    }
    if term.contains(char::is_whitespace) {
        return Err(Refusal::bad_request(format!("unable to parse requirement: {term:?}")));
    }
    named(term, Requirement::Exists)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_selected_by_every_operator() {
        let object = json!({"metadata": {"labels": {"a": "1", "b": "x"}}});
        for (selector, expected) in [
            ("", true),
            ("a=1", true),
            ("a==1,b=x", true),
            ("a=2", false),
            ("a!=2", true),
            ("c!=2", true),
            ("a", true),
            ("c", false),
            ("!c", true),
            ("!a", false),
            ("a in (1, 2),b notin (y,z)", true),
            ("a in (2,3)", false),
            ("c notin (1)", true),
        ] {
            let parsed = Selector::parse(Kind::Pod, selector, "").unwrap();
            assert_eq!(parsed.matches(&object), expected, "{selector}");
        }
        assert!(Selector::parse(Kind::Pod, "a within (1)", "").is_err());
    }

    #[test]
    fn fields_are_selected_by_those_that_the_kind_has() {
        let object = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}});
        for (selector, expected) in [
            ("metadata.name=p", true),
            ("spec.nodeName!=n", false),
            ("status.phase=", true),
            ("status.phase=Running", false),
        ] {
            assert_eq!(
                Selector::parse(Kind::Pod, "", selector).unwrap().matches(&object),
                expected,
                "{selector}"
            );
        }
        assert!(Selector::parse(Kind::Service, "", "spec.nodeName=n").is_err());
    }
}
