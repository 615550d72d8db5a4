//! How long the JSON of an `updateAddressLocations` body is, to the byte, without writing it.
//!
//! The core knows the shape that the wire wants (`{"action":…,"addressLocations":[{"addressLocation":…,
//! "addressUpdateAction":…,"addresses":[{"address":…,"services":[…]}]}]}`, without white space) but not JSON: all texts
//! in it are IPs and names that need no escapes. That the two agree is tested where the body is written.

use core::fmt::{self, Write};
use core::net::IpAddr;

use crate::ids::Ip;

/// The body around its locations.
pub(crate) const BODY: usize = r#"{"action":"PartialUpdate","addressLocations":[]}"#.len();

/// A location without its addresses, and the comma behind it.
pub(crate) fn location(ip: Ip) -> usize {
    r#"{"addressLocation":"","addressUpdateAction":"PartialUpdate","addresses":[]},"#.len() + text(ip)
}

/// An address that names services of these lengths, and the comma behind it.
pub(crate) fn address(ip: Ip, services: impl Iterator<Item = usize>) -> usize {
    r#"{"address":"","services":[]},"#.len()
        + text(ip)
        + services.map(|length| length + r#""","#.len()).sum::<usize>()
}

fn text(ip: Ip) -> usize {
    if let IpAddr::V4(ip) = ip.get() {
        // Formatting would be the most expensive part of a batch.
        let digits = ip.octets().map(|octet| 1 + usize::from(octet > 9) + usize::from(octet > 99));
        return digits.iter().sum::<usize>() + "...".len();
    }
    struct Length(usize);
    impl Write for Length {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.len();
            Ok(())
        }
    }
    let mut length = Length(0);
    // Counting cannot fail, and neither can the formatting of an IP.
    let _ = write!(length, "{ip}");
    length.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn the_length_of_an_ip_is_that_of_its_text() {
        for ip in ["0.0.0.0", "9.10.99.100", "255.255.255.255", "::", "fd00:10:224:16::c"] {
            let ip = Ip::from(ip.parse::<IpAddr>().unwrap());
            assert_eq!(text(ip), ip.to_string().len(), "{ip}");
        }
    }
}
