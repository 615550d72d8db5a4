//! What a load balancer looks like: the part of a Service that becomes one, valid by construction.

use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU16;

use crate::ids::IpFamily;

/// A load balancer that Azure accepts.
///
/// The order of rules carries no meaning; they are kept sorted so that equal specs compare equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LoadBalancerSpec {
    family: IpFamily,
    idle_timeout: IdleTimeout,
    rules: Vec<Rule>,
}

impl LoadBalancerSpec {
    /// A load balancer with one frontend of `family` and these rules.
    ///
    /// # Errors
    /// [`SpecError`] names the first rule that Azure would refuse.
    pub fn new(family: IpFamily, idle_timeout: IdleTimeout, mut rules: Vec<Rule>) -> Result<Self, SpecError> {
        match rules.len() {
            0 => return Err(SpecError::NoRules),
            count if count > MAX_RULES => return Err(SpecError::TooManyRules { count }),
            _ => {}
        }
        rules.sort_unstable();
        if let Some(pair) = rules.windows(2).find(|pair| pair[0].frontend() == pair[1].frontend()) {
            return Err(SpecError::DuplicateFrontend {
                protocol: pair[0].protocol,
                port: pair[0].frontend_port,
            });
        }
        let mut backends: Vec<_> = rules.iter().map(|rule| (rule.protocol, rule.backend_port)).collect();
        backends.sort_unstable();
        if let Some(pair) = backends.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SpecError::BackendPortCollision { protocol: pair[0].0, port: pair[0].1 });
        }
        Ok(Self { family, idle_timeout, rules })
    }

    /// The family of its public IP and of every address behind it.
    #[must_use]
    pub fn family(&self) -> IpFamily {
        self.family
    }

    /// After how many minutes without traffic a flow is forgotten.
    #[must_use]
    pub fn idle_timeout(&self) -> IdleTimeout {
        self.idle_timeout
    }

    /// The rules: at least one, sorted, no two with the same protocol and frontend port, nor with the same protocol
    /// and backend port.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

/// Azure's published limit of rules for one load balancer of the Standard family.
pub const MAX_RULES: usize = 1500;

/// One port of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Rule {
    /// The transport protocol.
    pub protocol: Protocol,
    /// The port that clients connect to.
    pub frontend_port: FrontendPort,
    /// The port that pods listen on.
    pub backend_port: NonZeroU16,
}

impl Rule {
    fn frontend(&self) -> (Protocol, FrontendPort) {
        (self.protocol, self.frontend_port)
    }
}

/// A transport protocol that the load balancer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// A port that clients connect to, 1–65534: Azure does not accept 65535 on a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "u16", into = "u16"))]
pub struct FrontendPort(NonZeroU16);

impl FrontendPort {
    /// The port `port`, unless it is 0 or 65535.
    #[must_use]
    pub fn new(port: u16) -> Option<Self> {
        NonZeroU16::new(port).filter(|port| port.get() != u16::MAX).map(Self)
    }

    /// The port number.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0.get()
    }
}

/// After how many minutes without traffic a flow is forgotten, 4–30.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "u8", into = "u8"))]
pub struct IdleTimeout(u8);

impl IdleTimeout {
    /// `minutes` minutes, when Azure allows that many.
    #[must_use]
    pub fn from_minutes(minutes: u8) -> Option<Self> {
        (4..=30).contains(&minutes).then_some(Self(minutes))
    }

    /// The number of minutes.
    #[must_use]
    pub fn minutes(self) -> u8 {
        self.0
    }
}

impl Default for IdleTimeout {
    /// 4 minutes, Azure's own default.
    fn default() -> Self {
        Self(4)
    }
}

/// Why Azure would refuse a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A load balancer without rules does nothing.
    #[error("there is no port to balance")]
    NoRules,
    /// See [`MAX_RULES`].
    #[error("{count} ports are more than the {MAX_RULES} rules that a load balancer can have")]
    TooManyRules {
        /// How many there are.
        count: usize,
    },
    /// Two rules listen on the same port.
    #[error("two ports listen on {protocol} {}", port.get())]
    DuplicateFrontend {
        /// Their protocol.
        protocol: Protocol,
        /// Their port.
        port: FrontendPort,
    },
    /// Azure answers `RulesUseSameBackendPortProtocolAndPool`.
    #[error(
        "two ports lead to {protocol} {port} on the pods, which Azure does not allow in one load balancer"
    )]
    BackendPortCollision {
        /// Their protocol.
        protocol: Protocol,
        /// The backend port they share.
        port: NonZeroU16,
    },
}

/// Reading checks what building checks.
#[cfg(feature = "serde")]
mod reading {
    use alloc::vec::Vec;

    use serde::de::{Deserialize, Deserializer, Error};

    use super::{FrontendPort, IdleTimeout, IpFamily, LoadBalancerSpec, Rule};

    impl<'de> Deserialize<'de> for LoadBalancerSpec {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            #[derive(serde::Deserialize)]
            #[serde(rename = "LoadBalancerSpec")]
            struct Unchecked {
                family: IpFamily,
                idle_timeout: IdleTimeout,
                rules: Vec<Rule>,
            }
            let Unchecked { family, idle_timeout, rules } = Unchecked::deserialize(deserializer)?;
            Self::new(family, idle_timeout, rules).map_err(D::Error::custom)
        }
    }

    impl TryFrom<u16> for FrontendPort {
        type Error = &'static str;

        fn try_from(port: u16) -> Result<Self, Self::Error> {
            Self::new(port).ok_or("a frontend port is between 1 and 65534")
        }
    }

    impl From<FrontendPort> for u16 {
        fn from(port: FrontendPort) -> Self {
            port.get()
        }
    }

    impl TryFrom<u8> for IdleTimeout {
        type Error = &'static str;

        fn try_from(minutes: u8) -> Result<Self, Self::Error> {
            Self::from_minutes(minutes).ok_or("an idle timeout is between 4 and 30 minutes")
        }
    }

    impl From<IdleTimeout> for u8 {
        fn from(timeout: IdleTimeout) -> Self {
            timeout.minutes()
        }
    }
}
