/*!
Two hosts with a line between them that has a rate, a delay and loss.

A [`Network`] is two network namespaces, each with one TUN device, and a process, the [`Relay`], that carries packets from
one device to the other. So both ends are the kernel's real TCP, with slow start. Not every kernel has netem, and netem on
one host's own connections would delay them before TCP sees the queue.

| noun | file |
|---|---|
| `Line`, `Link`: when does a packet arrive? A plain value | `link.rs` |
| `Relay`: the process that carries packets | `relay.rs` |
| `TunDevice`: a network device of the relay, and the only unsafe code of the network | `tun_device.rs` |
| `Namespace`: a host's network | `namespace.rs` |
| `WebServer`: nginx on the server | `web_server.rs` |
| `Registry`: docker-registry on the server | `registry.rs` |
*/

mod link;
mod namespace;
mod registry;
mod relay;
mod tun_device;
mod web_server;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};

pub use link::Line;
pub use namespace::Namespace;
pub use registry::Registry;
pub use relay::{Carried, Relay, run as run_relay};
pub use web_server::WebServer;

use super::undo::Undo;

/// Both addresses are private. The namespaces have no other network.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// How many packets wait for the relay to read them. They are not the line's queue: the relay reads at once.
const UNREAD: &str = "10000";

/// Two hosts with a line between them.
pub struct Network {
    pub client: Namespace,
    pub relay: Relay,
    /// How TCP of the server reacts to queues and loss, as the kernel names it.
    pub congestion_control: String,
}

impl Network {
    /// Where the server listens.
    pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(SERVER), 80);

    /// Where its registry listens.
    pub const REGISTRY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(SERVER), 5000);

    /// Makes the hosts and the line. This thread is on the server then, so what it starts is there.
    pub fn start(line: &Line, seed: u64, undo: &mut Undo) -> Result<Self> {
        let own = std::process::id();
        let server = Namespace::add(format!("brisk-server-{own}"), undo)?;
        let client = Namespace::add(format!("brisk-client-{own}"), undo)?;
        server.enter()?;
        let path = "/proc/sys/net/ipv4/tcp_congestion_control";
        let congestion_control =
            fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        // Names of devices have at most 15 bytes.
        let devices = [format!("bls{own}"), format!("blc{own}")];
        let relay = Relay::start(line, seed, devices.clone())?;
        server.ip(&["link", "set", &devices[1], "netns", client.name()])?;
        let hosts = [(&server, SERVER), (&client, CLIENT)];
        for ((host, address), device) in hosts.into_iter().zip(&devices) {
            let address = format!("{address}/24");
            host.ip(&["addr", "add", &address, "dev", device])?;
            // The hosts speak only IPv4. The kernel would send packets of its own to set up IPv6.
            host.ip(&["link", "set", device, "addrgenmode", "none"])?;
            host.ip(&["link", "set", device, "txqueuelen", UNREAD, "up"])?;
        }
        Ok(Self {
            client,
            relay,
            congestion_control: congestion_control.trim().to_owned(),
        })
    }
}
