//! Lists that come in pages.

use serde::{Deserialize, Deserializer};

/// The most pages that one list may have. A page of an address-location list holds some hundred entries, so this is
/// far beyond the largest cluster; it ends a list that would otherwise go round in circles.
pub const MAX_PAGES: usize = 10_000;

/// One page. Items that are `null` are left out, since they say nothing.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub(crate) struct Page<T> {
    #[serde(alias = "Value", default = "Vec::new", deserialize_with = "present")]
    pub(crate) value: Vec<T>,
    #[serde(rename = "nextLink", alias = "NextLink", default)]
    next_link: Option<String>,
}

impl<T> Page<T> {
    /// Where the next page is, unless this is the last one.
    pub(crate) fn next_link(&self) -> Option<&str> {
        self.next_link.as_deref().filter(|link| !link.is_empty())
    }
}

fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let items = Option::<Vec<Option<T>>>::deserialize(deserializer)?;
    Ok(items.into_iter().flatten().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_pages_are_read() {
        for (body, items, next) in [
            (r#"{"value":[1,null,2],"nextLink":"https://h/2"}"#, vec![1, 2], Some("https://h/2")),
            (r#"{"Value":[1],"NextLink":""}"#, vec![1], None),
            (r#"{"value":null,"nextLink":null}"#, vec![], None),
            ("{}", vec![], None),
        ] {
            let page: Page<u8> = serde_json::from_str(body).unwrap();
            assert_eq!((page.value.clone(), page.next_link()), (items, next), "{body}");
        }
    }
}
