//! What several resources have in common.

use clb_arm::ResourceId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::read::{is_default, null_as_default, open_enum};

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

/// A reference to another resource by its id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubResource {
    /// The full id, as Azure spells it; compare it as a [`ResourceId`], without regard to case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl SubResource {
    /// The id, parsed, if there is one that can be.
    #[must_use]
    pub fn resource_id(&self) -> Option<ResourceId> {
        self.id.as_deref()?.parse().ok()
    }
}

impl From<&ResourceId> for SubResource {
    fn from(id: &ResourceId) -> Self {
        Self { id: Some(id.to_string()), other: Map::new() }
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

open_enum! {
    /// How far the last change of a resource got.
    ProvisioningState {
        /// It is done.
        Succeeded = "Succeeded",
        /// The resource is being made.
        Creating = "Creating",
        /// A change goes on.
        Updating = "Updating",
        /// The resource is going.
        Deleting = "Deleting",
        /// It ended without success; the resource may hold a part of it.
        Failed = "Failed",
        /// It was stopped on the way.
        Canceled = "Canceled",
    }
}
