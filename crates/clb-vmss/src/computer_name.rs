//! Names of the instances of a uniform scale set: in the operating system, and in Azure.

use std::fmt;
use std::str::FromStr;

use crate::name::{ArmName, NameError, parse_instance_id};

/// The name that the operating system of a uniform instance has, which is also its Kubernetes Node name.
///
/// It is a prefix chosen for the scale set (`virtualMachineProfile.osProfile.computerNamePrefix`) and the instance's
/// number in base 36, six digits long: `aks-pool1-12345678-vmss00000a` is instance 10. The prefix is usually, but not
/// necessarily, the scale set's name. Host names have no case; this one is kept in lower case, as Node names are.
///
/// Any name of that shape parses, so the shape alone does not prove that a Node is an instance of a scale set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputerName {
    prefix: String,
    instance_id: u32,
}

/// How many digits of the name say which instance it is: fixed by Azure.
const DIGITS: u32 = 6;
const RADIX: u32 = 36;

impl ComputerName {
    /// The highest instance number that six digits can hold, 2,176,782,335.
    pub const MAX_INSTANCE_ID: u32 = RADIX.pow(DIGITS) - 1;

    /// The name of instance `instance_id` under `prefix`.
    ///
    /// # Errors
    /// [`ComputerNameError`] when the prefix is empty or not ASCII letters, digits, `-` and `.`, or when six digits
    /// cannot hold the number.
    pub fn new(prefix: &str, instance_id: u32) -> Result<Self, ComputerNameError> {
        if prefix.is_empty() {
            return Err(ComputerNameError::TooShort);
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        if let Some(character) = prefix.chars().find(|&c| !allowed(c)) {
            return Err(ComputerNameError::BadCharacter { character });
        }
        if instance_id > Self::MAX_INSTANCE_ID {
            return Err(ComputerNameError::InstanceIdTooLarge { instance_id });
        }
        Ok(Self { prefix: prefix.to_ascii_lowercase(), instance_id })
    }

    /// What the names of all instances of the scale set begin with, in lower case.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The instance's number in the scale set.
    #[must_use]
    pub fn instance_id(&self) -> u32 {
        self.instance_id
    }
}

impl FromStr for ComputerName {
    type Err = ComputerNameError;

    /// # Errors
    /// [`ComputerNameError`] for a name that has no prefix or does not end in six base-36 digits.
    fn from_str(name: &str) -> Result<Self, ComputerNameError> {
        let at = name.len().checked_sub(DIGITS as usize).ok_or(ComputerNameError::TooShort)?;
        let bad_digits = || ComputerNameError::BadDigits { name: name.to_owned() };
        let (prefix, digits) = name.split_at_checked(at).ok_or_else(bad_digits)?;
        // `from_str_radix` would take a sign.
        if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(bad_digits());
        }
        Self::new(prefix, u32::from_str_radix(digits, RADIX).map_err(|_| bad_digits())?)
    }
}

impl fmt::Display for ComputerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prefix)?;
        (0..DIGITS).rev().try_for_each(|position| {
            let digit = self.instance_id / RADIX.pow(position) % RADIX;
            // A remainder of division by the radix is a digit of that radix.
            fmt::Write::write_char(f, char::from_digit(digit, RADIX).unwrap_or('0'))
        })
    }
}

/// Why a text is not the computer name of a uniform instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComputerNameError {
    /// There is no prefix in front of the six digits.
    #[error("the computer name has no prefix in front of its {DIGITS} digits")]
    TooShort,
    /// It does not end in six base-36 digits.
    #[error("the computer name {name:?} does not end in {DIGITS} digits or letters")]
    BadDigits {
        /// The name.
        name: String,
    },
    /// The prefix holds what no host name does.
    #[error("the computer name's prefix holds {character:?}, which no host name does")]
    BadCharacter {
        /// The first such character.
        character: char,
    },
    /// Six digits cannot hold the instance's number.
    #[error("instance {instance_id} does not fit in the {DIGITS} digits of a computer name")]
    InstanceIdTooLarge {
        /// The number.
        instance_id: u32,
    },
}

/// The name that Azure gives the virtual machine of a uniform instance: `{scale set}_{instance number}`, in decimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceName {
    /// The scale set.
    pub scale_set: ArmName,
    /// The instance's number in it.
    pub instance_id: u32,
}

impl FromStr for InstanceName {
    type Err = InstanceNameError;

    /// # Errors
    /// [`InstanceNameError`] for a text that is not a scale set's name, an underscore and a number.
    fn from_str(name: &str) -> Result<Self, InstanceNameError> {
        // A scale set's name may hold underscores; a number does not.
        let (scale_set, instance) = name.rsplit_once('_').ok_or(InstanceNameError::NoUnderscore)?;
        let instance_id = parse_instance_id(instance)
            .ok_or_else(|| InstanceNameError::BadInstanceId { found: instance.to_owned() })?;
        Ok(Self { scale_set: scale_set.parse()?, instance_id })
    }
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.scale_set, self.instance_id)
    }
}

/// Why a text is not the name of a uniform instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceNameError {
    /// Nothing separates the scale set from the instance.
    #[error("the instance name holds no underscore")]
    NoUnderscore,
    /// What follows the last underscore is not a number, or not as Azure writes it.
    #[error("the instance name's number {found:?} is not one from 0 to {max} without leading zeros", max = u32::MAX)]
    BadInstanceId {
        /// What is there.
        found: String,
    },
    /// What stands in front of the last underscore cannot be a scale set's name.
    #[error("the instance name's scale set is invalid: {0}")]
    BadScaleSet(#[from] NameError),
}
