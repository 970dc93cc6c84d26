//! How many connections each client has. One of them that takes all would lock the others out.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts the connections of clients.
#[derive(Debug, Clone)]
pub struct Clients(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: u32,
    counts: Mutex<HashMap<IpAddr, u32>>,
    has_warned: AtomicBool,
}

impl Shared {
    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        // Each change is one number, so a panic leaves the map whole.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub struct Place {
    shared: Arc<Shared>,
    client: IpAddr,
}

impl Clients {
    /// Each may have so many.
    pub fn new(most: u32) -> Self {
        Self(Arc::new(Shared {
            most,
            counts: Mutex::default(),
            has_warned: AtomicBool::new(false),
        }))
    }

    /// Counts a connection. None: its client has as many as it may.
    pub fn place(&self, peer: IpAddr) -> Option<Place> {
        let shared = &self.0;
        let client = client(peer);
        let mut counts = shared.counts();
        let count = counts.entry(client).or_default();
        if *count < shared.most {
            *count += 1;
            return Some(Place {
                shared: Arc::clone(shared),
                client,
            });
        }
        drop(counts);
        if !shared.has_warned.swap(true, Ordering::Relaxed) {
            brisk_terminal::messages::warn(&format!(
                "{peer} has {} connections, and more of them are closed; --connections-per-client lets clients have more",
                shared.most
            ));
        }
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.shared.counts();
        if let Some(count) = counts.get_mut(&self.client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

/// A network gives each of its customers, and many machines give themselves, all addresses of IPv6 with one first half.
fn client(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_as_many_places_as_it_may() {
        let clients = Clients::new(2);
        let place = |address: &str| clients.place(address.parse().unwrap());
        let (one, two) = (place("::ffff:10.0.0.1"), place("10.0.0.1"));
        assert!(one.is_some() && two.is_some());
        assert!(place("10.0.0.1").is_none());
        assert!(place("10.0.0.2").is_some());
        drop(one);
        assert!(place("10.0.0.1").is_some());
        let net = (place("2001:db8::1"), place("2001:db8::ffff:1"));
        assert!(net.0.is_some() && net.1.is_some());
        assert!(place("2001:db8::2").is_none());
        assert!(place("2001:db8:0:1::2").is_some());
        drop((two, net));
        assert!(clients.0.counts().is_empty());
    }
}
