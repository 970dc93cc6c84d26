//! The caches that are compared: brisk proxy, and nginx with `proxy_cache`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::net::TcpStream;

use super::process::Server;

/// A running cache.
pub struct Cache {
    pub name: &'static str,
    pub address: SocketAddr,
    pub server: Server,
}

/// How long a cache may take until it listens.
const STARTING: Duration = Duration::from_secs(20);

impl Cache {
    /// `brisk-proxy` with these arguments, whose cache is in `directory`.
    pub async fn brisk(program: &Path, directory: &Path, arguments: &[String]) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let address = free_address()?;
        let mut command = Command::new(program);
        command
            .arg("--cache")
            .arg(directory.join("cache"))
            .args(["--listen", &address.to_string()])
            .args(arguments);
        let server = Server::start(&mut command, &directory.join("messages"))?;
        Self::when_it_listens("brisk proxy", address, server, directory).await
    }

    /// nginx before this origin. Its cache is in `directory`.
    pub async fn nginx(directory: &Path, origin: SocketAddr, processors: usize) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let address = free_address()?;
        let at = directory
            .to_str()
            .context("the directory has a name that is not UTF-8")?;
        let mut temporary = String::new();
        for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            temporary += &format!("    {kind}_temp_path {at}/{kind};\n");
        }
        // The workers must be able to use the directory, so they stay who starts them.
        let configuration = format!(
            "\
user root;
daemon off;
worker_processes {processors};
pid {at}/pid;
error_log {at}/messages-nginx;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
{temporary}    proxy_cache_path {at}/cache levels=1:2 keys_zone=all:10m max_size=20g inactive=1d use_temp_path=off;
    server {{
        listen {address};
        location / {{
            proxy_pass http://{origin};
            proxy_cache all;
            add_header Cache-Status $upstream_cache_status;
        }}
    }}
}}
"
        );
        let path = directory.join("nginx.conf");
        fs::write(&path, configuration)?;
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&path);
        let server = Server::start(&mut command, &directory.join("messages"))?;
        Self::when_it_listens("nginx", address, server, directory).await
    }

    async fn when_it_listens(
        name: &'static str,
        address: SocketAddr,
        mut server: Server,
        directory: &Path,
    ) -> Result<Self> {
        let begun = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            let waits = server.runs()? && begun.elapsed() < STARTING;
            ensure!(
                waits,
                "{name} does not listen at {address}: {}",
                fs::read_to_string(directory.join("messages"))?.trim()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self {
            name,
            address,
            server,
        })
    }
}

/// An address that nobody listens at.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?)
}
