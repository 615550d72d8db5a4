//! Identities and keys, normalised once where they enter.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::net::IpAddr;

/// The name under which a service is registered in the ServiceGateway, in lower case.
///
/// For an inbound Service this is the Kubernetes UID. NRP compares names without regard to case and has one
/// namespace for inbound and outbound services, so two spellings are one identity. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(Arc<str>);

impl ServiceId {
    /// The identity spelled `name`, in any case.
    ///
    /// # Errors
    /// [`IdError`] when `name` is empty, longer than the 80 characters ARM allows a resource name, or holds
    /// a character that ARM does not allow in one.
    pub fn new(name: &str) -> Result<Self, IdError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        match name {
            "" => Err(IdError::Empty),
            _ if name.len() > MAX_NAME_LENGTH => Err(IdError::TooLong { length: name.len() }),
            _ => match name.chars().find(|&c| !allowed(c)) {
                Some(character) => Err(IdError::BadCharacter { character }),
                None => Ok(Self(name.to_ascii_lowercase().into())),
            },
        }
    }

    /// The lower-case spelling.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// ARM's limit for the name of a network resource, in characters.
const MAX_NAME_LENGTH: usize = 80;

/// Why a text is not a service identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// There is no text at all.
    #[error("a service identity is empty")]
    Empty,
    /// ARM allows 80 characters.
    #[error("a service identity of {length} characters is longer than the {MAX_NAME_LENGTH} that ARM allows")]
    TooLong {
        /// How many there are.
        length: usize,
    },
    /// ARM allows letters, digits, `-`, `_` and `.`.
    #[error("a service identity holds {character:?}, which ARM does not allow in a resource name")]
    BadCharacter {
        /// The first such character.
        character: char,
    },
}

/// Namespace and name of a Kubernetes object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: String,
    /// The name, unique in the namespace among objects of its kind.
    pub name: String,
}

impl ObjectKey {
    /// The key `namespace/name`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// The name of a Kubernetes Node. Cloning is cheap, and so is comparing clones.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// The node called `name`.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name as Kubernetes spells it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An IP address in its one canonical form: an IPv4-mapped IPv6 address is the IPv4 address it maps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ip(IpAddr);

impl Ip {
    /// The IP family this address belongs to.
    #[must_use]
    pub fn family(self) -> IpFamily {
        match self.0 {
            IpAddr::V4(_) => IpFamily::V4,
            IpAddr::V6(_) => IpFamily::V6,
        }
    }

    /// The address itself.
    #[must_use]
    pub fn get(self) -> IpAddr {
        self.0
    }
}

impl From<IpAddr> for Ip {
    fn from(ip: IpAddr) -> Self {
        Self(ip.to_canonical())
    }
}

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A moment in milliseconds since an origin that the caller chooses and keeps.
///
/// The tracker only compares moments and adds durations to them; it never asks what time it is. Moments handed
/// in must not run backwards; one that does is taken as the latest seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// `millis` milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the origin.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This moment and `delay` more, at most the end of time.
    #[must_use]
    pub fn after(self, delay: core::time::Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long it is from `earlier` to this moment; zero when `earlier` is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> core::time::Duration {
        core::time::Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

macro_rules! shown_as_text {
    ($($type:ty => |$value:ident| $text:expr;)*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $value = self;
                write!(f, "{}", $text)
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}

shown_as_text! {
    ServiceId => |id| id.0;
    NodeName => |node| node.0;
    Ip => |ip| ip.0;
    ObjectKey => |key| format_args!("{}/{}", key.namespace, key.name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn two_spellings_of_a_service_are_one_identity() {
        assert_eq!(ServiceId::new("5DEC0346-D61C"), ServiceId::new("5dec0346-d61c"));
    }

    #[test]
    fn a_service_identity_is_a_valid_arm_name() {
        assert_eq!(ServiceId::new(""), Err(IdError::Empty));
        assert_eq!(ServiceId::new(&"a".repeat(81)), Err(IdError::TooLong { length: 81 }));
        assert_eq!(ServiceId::new("a/../b"), Err(IdError::BadCharacter { character: '/' }));
        assert_eq!(ServiceId::new(&"a".repeat(80)).unwrap().as_str(), "a".repeat(80));
    }

    #[test]
    fn a_mapped_address_is_the_address_it_maps() {
        let mapped = Ip::from("::ffff:10.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(mapped, Ip::from("10.0.0.1".parse::<IpAddr>().unwrap()));
        assert_eq!((mapped.family(), mapped.to_string()), (IpFamily::V4, "10.0.0.1".to_string()));
    }

    #[test]
    fn time_saturates_instead_of_wrapping() {
        let end = Timestamp::from_millis(u64::MAX - 1);
        assert_eq!(end.after(core::time::Duration::MAX), Timestamp::from_millis(u64::MAX));
        assert_eq!(Timestamp::from_millis(3).since(end), core::time::Duration::ZERO);
    }
}
