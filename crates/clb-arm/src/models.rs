//! What the resources of all providers have in common, and how what is not quite as described is read.
//!
//! For crates that describe resources: the fields of theirs that may be `null`, lists with holes, and enumerations that Azure
//! may add to.
//!
//! ```
//! use clb_arm::models::{ProvisioningState, sparse};
//!
//! clb_arm::open_enum! {
//!     /// Where an address comes from.
//!     Allocation {
//!         /// It stays.
//!         Static = "Static",
//!     }
//! }
//!
//! #[derive(serde::Deserialize)]
//! struct Pool {
//!     #[serde(default, deserialize_with = "sparse")]
//!     allocations: Vec<Allocation>,
//!     state: ProvisioningState,
//! }
//!
//! let pool: Pool = serde_json::from_str(r#"{"allocations": [null, "static", "New"], "state": "Succeeded"}"#)?;
//! assert_eq!(pool.allocations, [Allocation::Static, Allocation::Other("New".to_owned())]);
//! assert_eq!(pool.state, ProvisioningState::Succeeded);
//! # Ok::<(), serde_json::Error>(())
//! ```

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::ResourceId;

/// A reference to another resource by its id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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

/// Reads a value whose `null` means the same as its absence.
///
/// # Errors
/// When the value is neither `null` nor as it should be.
pub fn null_as_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads a list in which `null` entries say nothing, and which is empty when it is `null` itself.
///
/// # Errors
/// When an entry is neither `null` nor as it should be.
pub fn sparse<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(optional_sparse(deserializer)?.unwrap_or_default())
}

/// As [`sparse`], where the absence of the whole list means something.
///
/// # Errors
/// When an entry is neither `null` nor as it should be.
pub fn optional_sparse<'de, T, D>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let items = Option::<Vec<Option<T>>>::deserialize(deserializer)?;
    Ok(items.map(|items| items.into_iter().flatten().collect()))
}
