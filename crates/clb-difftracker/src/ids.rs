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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
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

    /// Whether it has the form of a UUID, as the UID of every Service has: 8-4-4-4-12 hexadecimal digits.
    #[must_use]
    pub fn is_uuid(&self) -> bool {
        let mut groups = self.0.split('-');
        let lengths =
            groups.by_ref().map(|group| group.bytes().all(|b| b.is_ascii_hexdigit()).then_some(group.len()));
        lengths.eq([8, 4, 4, 4, 12].map(Some))
    }
}

/// The name of an outbound service: the value of a pod's egress label, in lower case.
///
/// Azure names a NAT gateway and public IPs after it, so it is shorter and stricter than a [`ServiceId`]:
/// `^[a-z0-9]([a-z0-9._-]{0,71}[a-z0-9_])?$`, and not the name of the cluster's own gateway.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EgressName(ServiceId);

impl EgressName {
    /// The outbound service named by the label's value `label`, in any case.
    ///
    /// # Errors
    /// [`EgressNameError`] for a name that Azure would refuse, or that is not ours to use.
    pub fn new(label: &str) -> Result<Self, EgressNameError> {
        let name = label.to_ascii_lowercase();
        let is_end = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_inner = |c: &u8| is_end(c) || matches!(c, b'.' | b'_' | b'-');
        let is_well_formed = match name.as_bytes() {
            [] => false,
            [only] => is_end(only),
            [first, inner @ .., last] => {
                is_end(first) && inner.iter().all(is_inner) && (is_end(last) || *last == b'_')
            }
        };
        match () {
            () if name == RESERVED_NAT_GATEWAY => Err(EgressNameError::Reserved),
            () if name.len() > MAX_EGRESS_LENGTH => Err(EgressNameError::TooLong { length: name.len() }),
            () if is_well_formed => Ok(Self(ServiceId(name.into()))),
            () => Err(EgressNameError::Malformed),
        }
    }

    /// The name under which it is registered in the gateway.
    #[must_use]
    pub fn id(&self) -> &ServiceId {
        &self.0
    }
}

/// The cluster's own outbound gateway, which is never ours.
pub(crate) const RESERVED_NAT_GATEWAY: &str = "default-natgw";

/// ARM's 80 characters, less the length of `-pip-v6`.
const MAX_EGRESS_LENGTH: usize = MAX_NAME_LENGTH - "-pip-v6".len();

/// Why the value of an egress label is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressNameError {
    /// Its public IPs could not be named after it.
    #[error(
        "an egress name of {length} characters is longer than the {MAX_EGRESS_LENGTH} that leave room for the names of its public IPs"
    )]
    TooLong {
        /// How many there are.
        length: usize,
    },
    /// It is empty, or has a character that Azure does not allow there.
    #[error(
        "an egress name begins with a letter or digit, ends with one or with _, and has only these and . _ - between"
    )]
    Malformed,
    /// It is the name of the cluster's own gateway.
    #[error("{RESERVED_NAT_GATEWAY} is the cluster's own outbound gateway")]
    Reserved,
}

impl TryFrom<String> for ServiceId {
    type Error = IdError;

    fn try_from(name: String) -> Result<Self, IdError> {
        Self::new(&name)
    }
}

impl From<&ServiceId> for Arc<str> {
    fn from(id: &ServiceId) -> Self {
        id.0.clone()
    }
}

impl From<ServiceId> for String {
    fn from(id: ServiceId) -> Self {
        Self::from(id.as_str())
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

/// The UID of a Kubernetes object. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Uid(Arc<str>);

impl Uid {
    /// The UID as the API server spells it.
    pub fn new(uid: impl Into<Arc<str>>) -> Self {
        Self(uid.into())
    }

    /// The UID as the API server spells it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The version of a Kubernetes object, greater for later ones of one kind.
///
/// The API server writes decimal numbers that grow with each write, and since Kubernetes 1.35 promises it (KEP-5504). Zero
/// stands for a version that is not known, and is not compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct ResourceVersion(u64);

impl ResourceVersion {
    /// The version `number`.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether it is known to be older than `other`.
    pub(crate) fn is_before(self, other: Self) -> bool {
        self.0 != 0 && self < other
    }
}

/// The name of a Kubernetes Node. Cloning is cheap, and so is comparing clones.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "IpAddr", into = "IpAddr"))]
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

impl From<Ip> for IpAddr {
    fn from(ip: Ip) -> Self {
        ip.get()
    }
}

impl From<IpAddr> for Ip {
    fn from(ip: IpAddr) -> Self {
        Self(ip.to_canonical())
    }
}

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
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
    EgressName => |name| name.0;
    Uid => |uid| uid.0;
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
