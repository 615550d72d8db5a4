//! Private addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::answer::Refusal;

/// How many addresses at the beginning of a subnet Azure keeps to itself.
const RESERVED: u128 = 4;

/// A subnet, of which machines get the lowest address that is free. As in Azure, the first four and the last of each family
/// are nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// The IPv4 network and the length of its prefix, at most 32. Default 10.224.0.0/16, that of a managed cluster.
    pub v4: (Ipv4Addr, u8),
    /// The IPv6 network and the length of its prefix, at most 128. Default fd00:224::/64.
    pub v6: (Ipv6Addr, u8),
}

impl Default for Subnet {
    fn default() -> Self {
        Self {
            v4: (Ipv4Addr::new(10, 224, 0, 0), 16),
            v6: (Ipv6Addr::new(0xfd00, 0x224, 0, 0, 0, 0, 0, 0), 64),
        }
    }
}

/// The addresses of a subnet, those in use told from the others.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    v4: Pool,
    v6: Pool,
    used: BTreeSet<IpAddr>,
}

#[derive(Clone, Debug, Default)]
struct Pool {
    first: u128,
    /// How many there are.
    size: u128,
    next: u128,
    returned: BTreeSet<u128>,
}

impl Pool {
    fn new(network: u128, prefix: u8, bits: u8) -> Self {
        let host_bits = u32::from(bits.saturating_sub(prefix));
        let size = 1_u128.checked_shl(host_bits).unwrap_or(u128::MAX);
        Self { first: network & !(size - 1), size, next: RESERVED, returned: BTreeSet::new() }
    }

    fn take(&mut self) -> Option<u128> {
        let number = match self.returned.pop_first() {
            Some(number) => number,
            None if self.next + 1 < self.size => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        Some(self.first + number)
    }

    fn put_back(&mut self, address: u128) {
        let number = address.wrapping_sub(self.first);
        if (RESERVED..self.next).contains(&number) {
            self.returned.insert(number);
        }
    }
}

impl Addresses {
    pub(super) fn new(Subnet { v4, v6 }: Subnet) -> Self {
        Self {
            v4: Pool::new(u128::from(v4.0.to_bits()), v4.1, 32),
            v6: Pool::new(v6.0.to_bits(), v6.1, 128),
            used: BTreeSet::new(),
        }
    }

    /// The lowest address that is free.
    pub(super) fn take(&mut self, is_ipv6: bool) -> Result<IpAddr, Refusal> {
        loop {
            let address = if is_ipv6 {
                self.v6.take().map(|bits| IpAddr::from(Ipv6Addr::from_bits(bits)))
            } else {
                let bits = self.v4.take().and_then(|bits| u32::try_from(bits).ok());
                bits.map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits)))
            };
            let address = address.ok_or_else(|| {
                Refusal::bad("SubnetIsFull", "Subnet does not have enough capacity for the IP addresses.")
            })?;
            if self.used.insert(address) {
                return Ok(address);
            }
        }
    }

    /// Takes this one, whether or not it is in the subnet.
    pub(super) fn take_this(&mut self, address: IpAddr) -> Result<(), Refusal> {
        if self.used.insert(address) {
            return Ok(());
        }
        let message = format!("IP configuration cannot use {address}, which is already allocated.");
        Err(Refusal::bad("PrivateIPAddressIsAllocated", message))
    }

    pub(super) fn put_back(&mut self, address: IpAddr) {
        if !self.used.remove(&address) {
            return;
        }
        match address {
            IpAddr::V4(address) => self.v4.put_back(u128::from(address.to_bits())),
            IpAddr::V6(address) => self.v6.put_back(address.to_bits()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_address_is_taken_until_there_is_none() {
        let v6 = (Ipv6Addr::UNSPECIFIED, 128);
        let mut addresses = Addresses::new(Subnet { v4: (Ipv4Addr::new(10, 0, 0, 9), 29), v6 });
        let take = |addresses: &mut Addresses| addresses.take(false).ok().map(|ip| ip.to_string());
        let taken: Vec<_> = (0..4).map(|_| take(&mut addresses)).collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(taken, [some("10.0.0.12"), some("10.0.0.13"), some("10.0.0.14"), None]);
        for ip in ["10.0.0.14", "10.0.0.12", "10.0.0.8", "192.0.2.1"] {
            addresses.put_back(ip.parse().unwrap());
        }
        let taken: Vec<_> = (0..3).map(|_| take(&mut addresses)).collect();
        assert_eq!(taken, [some("10.0.0.12"), some("10.0.0.14"), None]);
        assert!(addresses.take(true).is_err());

        // One that was asked for by itself is left out, and comes back.
        addresses.put_back("10.0.0.12".parse().unwrap());
        addresses.take_this("10.0.0.12".parse().unwrap()).unwrap();
        assert!(addresses.take_this("10.0.0.12".parse().unwrap()).is_err());
        assert_eq!(take(&mut addresses), None);
        addresses.put_back("10.0.0.12".parse().unwrap());
        assert_eq!(take(&mut addresses), some("10.0.0.12"));
    }
}
