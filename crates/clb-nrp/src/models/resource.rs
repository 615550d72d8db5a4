//! What several resources have in common.

use std::collections::BTreeMap;

use clb_arm::ResourceId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::open_enum::open_enum;
use super::read::null_as_default;

/// A resource: what all kinds have, and the properties of its kind.
///
/// What this crate has no field for is kept in `other` and written back, so that a change loses nothing that
/// somebody else has set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "P: Default + Deserialize<'de>"))]
pub struct Resource<P> {
    /// The full id; only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The name; only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The version that was read. A PUT that carries one replaces only that version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Tags, ours and others'. Absent ones are removed by a PUT.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// What is paid for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<Sku>,
    /// Everything that is specific to the kind.
    #[serde(deserialize_with = "null_as_default")]
    pub properties: P,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A reference to another resource by its id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubResource {
    /// The full id, as Azure spells it; compare it as a [`ResourceId`], without regard to case.
    #[serde(alias = "Id", skip_serializing_if = "Option::is_none")]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sku {
    /// Such as `StandardV2`, or `Service` for a load balancer behind a ServiceGateway. Case matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Such as `Regional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Sku {
    /// The SKU called `name`, of the default tier.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: Some(name.to_owned()), tier: None, other: Map::new() }
    }
}

open_enum! {
    /// How far the last change of a resource got.
    ProvisioningState {
        /// It is done.
        Succeeded = "Succeeded",
        /// It goes on.
        Updating = "Updating",
        /// The resource is going.
        Deleting = "Deleting",
        /// It ended without success; the resource may hold a part of it.
        Failed = "Failed",
        /// It was stopped on the way.
        Canceled = "Canceled",
    }
}
