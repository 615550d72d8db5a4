//! What several resources have in common.

use clb_arm::ResourceId;
use clb_arm::models::null_as_default;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A resource: what all kinds have, and the properties of its kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(bound(
    serialize = "P: Default + PartialEq + Serialize",
    deserialize = "P: Default + Deserialize<'de>"
))]
pub struct Resource<P> {
    /// The full id; only read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The name; only read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The version that was read. A PUT that carries one replaces only that version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// What is paid for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<Sku>,
    /// Everything that is specific to the kind.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub properties: P,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl<P> Resource<P> {
    /// The id, parsed, if there is one that can be.
    #[must_use]
    pub fn resource_id(&self) -> Option<ResourceId> {
        self.id.as_deref()?.parse().ok()
    }
}

/// What is paid for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sku {
    /// Such as `Standard_D2s_v3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many machines a scale set should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Whether there is nothing to write.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
