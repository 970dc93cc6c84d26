//! The registry of the other host: Debian's docker-registry.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::web_server::await_answer;

/// A running docker-registry. It ends when this value is dropped.
pub struct Registry(Child);

impl Registry {
    /// Starts a registry of this process's network at `address`. It keeps its files in `place`, a directory to make.
    pub fn start(place: &Path, address: &SocketAddr) -> Result<Self> {
        let configuration = serde_json::json!({
            "version": 0.1,
            "log": {"level": "error", "accesslog": {"disabled": true}},
            "storage": {"filesystem": {"rootdirectory": place.join("blobs")}},
            "http": {"addr": address.to_string()},
        });
        // JSON is YAML, too.
        let path = place.join("registry.yml");
        let made =
            fs::create_dir_all(place).and_then(|()| fs::write(&path, configuration.to_string()));
        made.with_context(|| format!("cannot make {}", place.display()))?;
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // An interrupt from the terminal reaches only the lab.
            .process_group(0)
            .spawn()
            .context(
                "cannot start docker-registry, which --registry measures; install docker-registry",
            )?;
        let mut registry = Self(process);
        await_answer(&mut registry.0, address).context("docker-registry has not started")?;
        Ok(registry)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
