//! The arguments of `brisk proxy`, for which brisk becomes `brisk-proxy`.
//!
//! They are here and not there, so that help, man pages and completions have them too. Both programs read them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};

use crate::age::parse_age;
use crate::size::parse_size;

/// Where the proxy listens, and what it caches how.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
KIND says what is behind a URL: python (a package index), npm, cargo (a sparse index), go, apt, or oci (a registry of \
container images; oci-push lets clients push to it, too). The proxy then rewrites the URLs of files in its pages, so that they \
come through the proxy too, and keeps files whose name fixes their content for a year. Without KIND, nothing is rewritten.\n\n\
Without --map and --preset, the proxy serves each of pip, uv, npm, cargo, go and apt that has an upstream in its own \
configuration on this system. brisk has no address of a service built in.\n\n\
/-/metrics has figures for Prometheus, and /-/ has a page with them for people. SIGTERM ends the proxy after the answers \
that are under way. systemd may hand sockets over (see packaging/systemd).\n\n\
Examples:\n  \
brisk proxy\n  \
brisk proxy --map /simple=python:https://index.example/simple --limit 20G\n  \
brisk proxy --map /v2=oci:https://registry.example/v2\n  \
eval \"$(brisk proxy env pip)\""
)]
pub struct ProxyArgs {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub action: Option<ProxyAction>,
    /// Listens at this address. May be repeated. Sockets from systemd come first [default: 127.0.0.1:7077]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<SocketAddr>,
    /// Serves a URL under a prefix. May be repeated; the longest prefix that fits a path counts.
    #[arg(long, value_name = "/PREFIX=[KIND:]URL")]
    pub map: Vec<String>,
    /// Serves an index of this kind under /KIND/. The URL may be in the configuration of the kind's client. May be repeated.
    #[arg(long, value_name = "KIND[=URL]")]
    pub preset: Vec<String>,
    /// The directory of the cache [default: ~/.cache/brisk/proxy]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// How large the cache may become.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "10G")]
    pub limit: u64,
    /// Asks no upstream: stored answers of any age count, and everything else is 504.
    #[arg(long)]
    pub offline: bool,
    /// Keeps answers fresh for at least so long. May be repeated. A pattern with a slash is compared with the URL without its
    /// scheme, one without with the host; * stands for any text.
    #[arg(long, value_name = "PATTERN=TIME", value_parser = parse_lifetime)]
    pub ttl: Vec<(String, Duration)>,
    /// For how long a stored answer stands in for an upstream that fails.
    #[arg(long, value_name = "TIME", value_parser = parse_age, default_value = "30d")]
    pub stale: Duration,
    /// Follows redirects to this host, and caches what it has. May be repeated. Other redirects go to the client, but for those
    /// of registries.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub follow: Vec<String>,
    /// Sends the field in this file, such as "Authorization: Bearer TOKEN", to the upstream of a map. What it brings is for all
    /// clients. May be repeated.
    #[arg(long, value_name = "/PREFIX=FILE")]
    pub credential: Vec<String>,
    /// Passes this field of requests on, such as X-Forwarded-Host, which the proxy removes otherwise: it may change an answer,
    /// and the answer may be kept for others. May be repeated.
    #[arg(long, value_name = "FIELD")]
    pub pass_field: Vec<String>,
    /// Serves with so many processes that share sockets and cache. One that dies is replaced.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), default_value = "1")]
    pub workers: u16,
    /// Answers clients in this net, such as 192.168.0.0/16, besides the loopback. May be repeated.
    #[arg(long, value_name = "NET")]
    pub allow: Vec<String>,
    /// Answers only clients that know the token in this file, as the password of the user brisk.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Answers /-/metrics and /-/ for all clients, and not for the loopback alone.
    #[arg(long)]
    pub open_pages: bool,
    /// The URL under which clients find the proxy. Otherwise their Host field says it.
    #[arg(long, value_name = "URL")]
    pub public_url: Option<String>,
    /// Writes a line for each request to this file; - is stdout.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// How long the body of a request may be.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    pub upload_limit: u64,
    /// How many connections a process has at most. Others wait.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), default_value = "4096")]
    pub connections: u32,
    /// How many of them one client has at most; more are closed. Clients behind another proxy count as one [default: half of
    /// --connections]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections_per_client: Option<u32>,
    /// How long an upstream may take to answer, and to send the next piece.
    #[arg(long, value_name = "TIME", value_parser = parse_age, default_value = "60s")]
    pub upstream_timeout: Duration,
    /// How long a client may take to send the next piece or request, or to take one. It has 10 seconds for a head.
    #[arg(long, value_name = "TIME", value_parser = parse_age, default_value = "60s")]
    pub client_timeout: Duration,
    /// How long answers may go on after SIGTERM.
    #[arg(long, value_name = "TIME", value_parser = parse_age, default_value = "30s")]
    pub grace: Duration,
}

/// What `brisk proxy` does instead of serving.
#[derive(Debug, Subcommand)]
pub enum ProxyAction {
    /// Prints the settings that make a client use the proxy.
    #[command(after_help = "\
pip, uv, npm and go: lines for a shell. cargo: lines for .cargo/config.toml. apt: the sources of this system, to replace \
the files in /etc/apt/sources.list.d with.")]
    Env(ProxyEnvArgs),
}

/// A client, and where its proxy is.
#[derive(Debug, Args)]
pub struct ProxyEnvArgs {
    /// The client.
    pub client: ProxyClient,
    /// The URL of the proxy.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7077")]
    pub url: String,
    /// The prefix under which the proxy serves the client [default: /KIND]
    #[arg(long, value_name = "/PREFIX")]
    pub prefix: Option<String>,
}

/// A program that can use the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProxyClient {
    /// pip.
    Pip,
    /// uv.
    Uv,
    /// npm.
    Npm,
    /// cargo.
    Cargo,
    /// go.
    Go,
    /// apt.
    Apt,
}

fn parse_lifetime(text: &str) -> anyhow::Result<(String, Duration)> {
    let (pattern, time) = text
        .rsplit_once('=')
        .context("allowed is PATTERN=TIME, such as index.example/simple/*=10m")?;
    Ok((pattern.to_owned(), parse_age(time)?))
}
