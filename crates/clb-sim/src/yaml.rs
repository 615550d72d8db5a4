//! YAML as Kubernetes' tools take it: only `true` and `false` are booleans, so that a node may be called `n`.

use serde::de::DeserializeOwned;

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true }
}

/// Reads all documents of a text.
pub(crate) fn documents<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, serde_saphyr::Error> {
    serde_saphyr::from_multiple_with_options(text, options())
}

/// Reads the one document of a text.
pub(crate) fn document<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_saphyr::Error> {
    serde_saphyr::from_slice_with_options(text, options())
}
