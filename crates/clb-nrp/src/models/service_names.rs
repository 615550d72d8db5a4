use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};
use serde_json::value::{RawValue, to_raw_value};

use super::read::sparse;

/// The names of the services that an address backs: a list that addresses share.
///
/// A request of a hundred thousand addresses has few different lists, and they are most of its text: each is written as JSON
/// once and copied from then on. (So it can be serialised by `serde_json` only, which is what ARM speaks.)
#[derive(Clone, Debug, Default)]
pub struct ServiceNames(Arc<List>);

#[derive(Debug, Default)]
struct List {
    names: Box<[String]>,
    json: OnceLock<Box<RawValue>>,
}

impl Deref for ServiceNames {
    type Target = [String];

    fn deref(&self) -> &Self::Target {
        &self.0.names
    }
}

impl<N: Into<String>> FromIterator<N> for ServiceNames {
    fn from_iter<I: IntoIterator<Item = N>>(names: I) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        Self(Arc::new(List { names, json: OnceLock::new() }))
    }
}

impl PartialEq for ServiceNames {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for ServiceNames {}

impl Serialize for ServiceNames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let List { names, json } = &*self.0;
        if let Some(json) = json.get() {
            return json.serialize(serializer);
        }
        let written = to_raw_value(names).map_err(S::Error::custom)?;
        json.get_or_init(|| written).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ServiceNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(sparse::<String, D>(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_written_as_one_each_time_and_read_back() {
        let names: ServiceNames = ["plain", "with \"quotes\"\n"].into_iter().collect();
        let again = names.clone();
        let expected = r#"["plain","with \"quotes\"\n"]"#;
        assert_eq!(
            [&names, &names, &again].map(|names| serde_json::to_string(names).unwrap()),
            [expected; 3].map(str::to_owned)
        );
        assert_eq!(serde_json::from_str::<ServiceNames>(expected).unwrap(), names);
        assert_eq!(serde_json::to_value(&names).unwrap(), serde_json::json!(["plain", "with \"quotes\"\n"]));
        assert_eq!(serde_json::from_str::<ServiceNames>("null").unwrap(), ServiceNames::default());
    }
}
