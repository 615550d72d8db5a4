//! Reading what is not quite as described.

use serde::{Deserialize, Deserializer};

/// A boolean, perhaps as text in any casing; null is `None`.
pub(super) fn optional_bool<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Bool {
        Real(bool),
        Text(String),
    }
    match Option::deserialize(deserializer)? {
        None => Ok(None),
        Some(Bool::Real(value)) => Ok(Some(value)),
        Some(Bool::Text(text)) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
        Some(Bool::Text(text)) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
        Some(Bool::Text(text)) => Err(serde::de::Error::custom(format!("{text:?} is not a boolean"))),
    }
}

/// As [`optional_bool`], where absence means false.
pub(super) fn bool_or_false<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(optional_bool(deserializer)?.unwrap_or_default())
}
