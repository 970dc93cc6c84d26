/*!
The program `brisk-proxy`: a small caching proxy that makes pip, uv, npm, cargo, go and apt fast, polite and usable
offline.

`brisk proxy` becomes this program. It is a reverse proxy: `map::Maps` says which URL stands behind which prefix
of its paths, and nothing else is reached through it. So it adds no TLS and no runtime to the programs that start others.

# Where to begin

`serving` puts everything together. A connection comes in through `server`. `guarded_stream` judges what its client sends,
before hyper reads it (`request_head`, `chunks`), and `file_stream` sends long bodies from files. `proxy` takes a request from its head to its answer, and `upstream` asks
for what is not there.

# Trust

Clients and upstreams are untrusted. A client reaches the URLs of maps and nothing else. Credentials pass through, and are
in no key, log or message.
*/
#![forbid(unsafe_code)]

mod access;
mod access_log;
mod body;
mod cached;
mod chosen_maps;
mod chunks;
mod clients;
mod connector;
mod discovery;
mod env;
mod exposition;
mod far_connector;
mod file_hosts;
mod file_stream;
mod form;
mod grants;
mod guarded_stream;
mod hop_by_hop;
mod kind;
mod lasting;
mod map;
mod mapped_memory;
mod metrics;
mod net;
mod oci;
mod own_pages;
mod page;
mod patient_body;
mod preset;
mod private_file;
mod problem;
mod proxy;
mod pulling;
mod request_head;
mod secret;
mod server;
mod serving;
mod stated;
mod status_page;
mod steering_fields;
mod upstream;
mod upstream_credential;
mod upstream_error;
mod workers;

use std::process::ExitCode;

use brisk_terminal::proxy_args::{ProxyAction, ProxyArgs};
use clap::Parser;

/// Serves package indexes and other sites from a cache, fast and offline.
#[derive(Debug, Parser)]
#[command(
    name = "brisk-proxy",
    bin_name = "brisk proxy",
    version,
    max_term_width = 100
)]
struct Program {
    #[command(flatten)]
    args: ProxyArgs,
}

/// What `brisk-proxy` does: serves, as its arguments say.
pub fn run() -> ExitCode {
    let args = Program::parse().args;
    brisk_terminal::answer::end(match &args.action {
        Some(ProxyAction::Env(args)) => env::run(args),
        None => serving::run(&args),
    })
}
