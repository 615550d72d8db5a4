//! `spec.providerID` of a Kubernetes Node: which Azure virtual machine it is.

use std::fmt;
use std::str::{FromStr, Split};

use crate::name::{ArmName, NameError, parse_instance_id};

/// The Azure virtual machine that a Kubernetes Node says it is.
///
/// Read with [`str::parse`], written with [`ToString`]. The text is `azure://` and the machine's Azure resource id;
/// the casing of every part varies in practice and carries no meaning, so two ids that differ only in case are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProviderId {
    /// An instance of a scale set in uniform orchestration.
    Uniform {
        /// The subscription's id.
        subscription: ArmName,
        /// The resource group.
        resource_group: ArmName,
        /// The scale set.
        scale_set: ArmName,
        /// The instance's number in the scale set.
        instance_id: u32,
    },
    /// A virtual machine of its own: standalone, or of a scale set in flexible orchestration.
    VirtualMachine {
        /// The subscription's id.
        subscription: ArmName,
        /// The resource group.
        resource_group: ArmName,
        /// The virtual machine.
        name: ArmName,
    },
}

const SCHEME: &str = "azure://";
const SUBSCRIPTIONS: &str = "subscriptions";
const RESOURCE_GROUPS: &str = "resourceGroups";
const PROVIDERS: &str = "providers";
const COMPUTE: &str = "Microsoft.Compute";
const SCALE_SETS: &str = "virtualMachineScaleSets";
const VIRTUAL_MACHINES: &str = "virtualMachines";

impl FromStr for ProviderId {
    type Err = ProviderIdError;

    /// # Errors
    /// [`ProviderIdError`] names the first part that does not fit. Nothing is tolerated before, between or after the
    /// known parts, so that no other kind of resource is taken for a machine.
    fn from_str(text: &str) -> Result<Self, ProviderIdError> {
        let path = match text.split_at_checked(SCHEME.len()) {
            Some((scheme, path)) if scheme.eq_ignore_ascii_case(SCHEME) => path,
            Some(_) | None => return Err(ProviderIdError::NotAzure),
        };
        let mut segments = Segments(path.split('/'));
        segments.expect("")?;
        segments.expect(SUBSCRIPTIONS)?;
        let subscription = segments.name("subscription")?;
        segments.expect(RESOURCE_GROUPS)?;
        let resource_group = segments.name("resource group")?;
        segments.expect(PROVIDERS)?;
        segments.expect(COMPUTE)?;
        let kind = segments.next(VIRTUAL_MACHINES)?;
        let id = if kind.eq_ignore_ascii_case(SCALE_SETS) {
            let scale_set = segments.name("scale set")?;
            segments.expect(VIRTUAL_MACHINES)?;
            let instance = segments.next("an instance number")?;
            let instance_id = parse_instance_id(instance)
                .ok_or_else(|| ProviderIdError::BadInstanceId { found: instance.to_owned() })?;
            Self::Uniform { subscription, resource_group, scale_set, instance_id }
        } else if kind.eq_ignore_ascii_case(VIRTUAL_MACHINES) {
            Self::VirtualMachine { subscription, resource_group, name: segments.name("virtual machine")? }
        } else {
            return Err(ProviderIdError::Unexpected { expected: VIRTUAL_MACHINES, found: kind.to_owned() });
        };
        segments.end()?;
        Ok(id)
    }
}

impl ProviderId {
    /// The machine that the Azure resource id `id` names, if it names one.
    #[must_use]
    pub fn from_resource_id(id: &str) -> Option<Self> {
        format!("{SCHEME}{id}").parse().ok()
    }

    /// The Azure resource id of the machine.
    #[must_use]
    pub fn resource_id(&self) -> String {
        let mut text = self.to_string();
        text.drain(..SCHEME.len());
        text
    }
}

/// The parts of the path that are still to be read.
struct Segments<'a>(Split<'a, char>);

impl<'a> Segments<'a> {
    fn next(&mut self, expected: &'static str) -> Result<&'a str, ProviderIdError> {
        self.0.next().ok_or(ProviderIdError::TooShort { expected })
    }

    fn expect(&mut self, expected: &'static str) -> Result<(), ProviderIdError> {
        let found = self.next(expected)?;
        if found.eq_ignore_ascii_case(expected) {
            Ok(())
        } else {
            Err(ProviderIdError::Unexpected { expected, found: found.to_owned() })
        }
    }

    fn name(&mut self, part: &'static str) -> Result<ArmName, ProviderIdError> {
        self.next(part)?.parse().map_err(|source| ProviderIdError::BadName { part, source })
    }

    fn end(mut self) -> Result<(), ProviderIdError> {
        match self.0.next() {
            None => Ok(()),
            Some(found) => Err(ProviderIdError::TooLong { found: found.to_owned() }),
        }
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform { subscription, resource_group, scale_set, instance_id } => write!(
                f,
                "{SCHEME}/{SUBSCRIPTIONS}/{subscription}/{RESOURCE_GROUPS}/{resource_group}/{PROVIDERS}/{COMPUTE}\
                 /{SCALE_SETS}/{scale_set}/{VIRTUAL_MACHINES}/{instance_id}"
            ),
            Self::VirtualMachine { subscription, resource_group, name } => write!(
                f,
                "{SCHEME}/{SUBSCRIPTIONS}/{subscription}/{RESOURCE_GROUPS}/{resource_group}/{PROVIDERS}/{COMPUTE}\
                 /{VIRTUAL_MACHINES}/{name}"
            ),
        }
    }
}

/// Why a text is not the id of an Azure virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderIdError {
    /// It does not begin with `azure://`: a Node of another cloud, or of none. In a mixed cluster this is no fault.
    #[error("the provider id does not begin with {SCHEME}")]
    NotAzure,
    /// It ends too early.
    #[error("the provider id ends where {expected:?} should follow")]
    TooShort {
        /// What should come next.
        expected: &'static str,
    },
    /// A fixed part of it is something else.
    #[error("the provider id has {found:?} where {expected:?} should be")]
    Unexpected {
        /// What should be there, in any casing.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A name in it cannot be one.
    #[error("the provider id's name of the {part} is invalid: {source}")]
    BadName {
        /// Whose name.
        part: &'static str,
        /// What is wrong with it.
        source: NameError,
    },
    /// The instance of the scale set is not a number, or not as Azure writes it.
    #[error("the provider id's instance {found:?} is not a number from 0 to {max} without leading zeros", max = u32::MAX)]
    BadInstanceId {
        /// What is there.
        found: String,
    },
    /// It goes on after the machine.
    #[error("the provider id goes on with {found:?} after the virtual machine")]
    TooLong {
        /// The first part too many.
        found: String,
    },
}
