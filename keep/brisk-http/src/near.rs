use std::net::IpAddr;

/// Whether an address is of this machine or of its link. What listens there may trust whoever is here, so a server elsewhere must not
/// choose what is asked of it.
pub fn is_near_address(address: IpAddr) -> bool {
    match address.to_canonical() {
        // The whole net of 0.0.0.0 is this machine (RFC 1122, section 3.2.1.3).
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || v6.is_unicast_link_local(),
    }
}
