//! What the fetcher and the processes that read say to each other: a line of JSON for each message, over a local socket.

use std::fmt;
use std::io::{self, Write};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::schedule::Class;

/// The longest line. A manifest and a list of manifests fit into it, as JSON writes them, and so does what they say.
pub const MOST_LINE: usize = 256 << 10;

/// When to fetch what nobody has asked for yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Background {
    /// Never: only what is read arrives.
    Never,
    /// When nobody has waited for two seconds.
    #[default]
    Idle,
    /// As soon as nothing more urgent is wanted.
    Full,
}

/// What the user wants of an image on the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenOptions {
    /// The root hash that all blocks must have: one that the user has named, or that a trusted key has signed.
    pub root: Option<String>,
    /// When the rest arrives.
    pub background: Background,
    /// At most so many bytes a second for what nobody waits for.
    pub limit_rate: Option<u64>,
    /// After so many seconds without any progress, a read fails.
    pub wait: u64,
}

/// The seconds without progress after which a read fails, unless the user says otherwise.
pub const WAIT: u64 = 60;

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            root: None,
            background: Background::default(),
            limit_rate: None,
            wait: WAIT,
        }
    }
}

/// What a server said about a URL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The text of `IMAGE.remote`, if there is one.
    pub descriptor: Option<String>,
    /// Its signature, if there is one.
    pub signature: Option<String>,
    /// Why the server was not asked, if this is what it said earlier.
    pub stale: Option<String>,
    /// The manifest in a registry, as it was sent. What else is said here is in it.
    #[serde(default)]
    pub manifest: Option<String>,
    /// The list of manifests that leads to it, as it was sent, if the URL has the digest of that.
    #[serde(default)]
    pub index: Option<String>,
    /// The host that gives tokens for the registry, if that is another one.
    #[serde(default)]
    pub realm: Option<String>,
    /// What cosign has signed of the manifest, if that was asked for.
    #[serde(default)]
    pub cosigned: Vec<Cosigned>,
}

/// What cosign has signed of a manifest, as it lies in the registry. Nothing in it was verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cosigned {
    /// The signature, in base64.
    pub signature: String,
    /// The text that is signed.
    pub payload: String,
}

/// What a user proves to a registry, an object store or a web server with.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// The user, or the name of a key. None: the secret is an identity token, for which the host that gives tokens gives one.
    pub user: Option<String>,
    /// The password or the token, or the secret of the key.
    pub secret: String,
    /// What goes with a key that is good for a while.
    #[serde(default)]
    pub token: Option<String>,
    /// The region in which the user's object store is.
    #[serde(default)]
    pub region: Option<String>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

/// A file that goes to a registry, with its manifest. It is the standard input of the process that sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// The name in the registry.
    pub url: String,
    /// The digest of the file, with `sha256:`.
    pub digest: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// The text of the config.
    pub config: String,
    /// The text of the manifest.
    pub manifest: String,
    /// Whether it has no name of its own, and says something of what `url` names.
    pub is_referrer: bool,
}

/// A container image that is to be fetched into a directory, which becomes an OCI layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Download {
    /// The name in the registry.
    pub url: String,
    /// The platform, as `linux/arm64/v8`.
    pub platform: String,
    /// The most bytes that config and layers may have together, as they are sent.
    pub most: u64,
}

/// An image that can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The name of its entry in the cache.
    pub key: String,
    /// Bytes of the file.
    pub len: u64,
}

/// A message to the fetcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Who asks has these surroundings. It comes first, with a descriptor of its network: see
    /// [`Surroundings`](crate::Surroundings). Who does not say it may only ask for what is in the cache under a key.
    Hello {
        /// A digest of the variables.
        variables: String,
    },
    /// What does the server say about this URL? With `refresh`, it is asked even if an earlier answer is fresh.
    Resolve {
        /// The URL.
        url: String,
        /// Whether an answer of the cache will not do.
        refresh: bool,
        /// After so many seconds without an answer, it is given up.
        wait: u64,
    },
    /// Let this image arrive.
    Open {
        /// The URL.
        url: String,
        /// What the server said of it.
        resolved: Resolved,
        /// What the user wants.
        options: OpenOptions,
        /// What is here cannot be read, so what the server says now counts, and not what the entry was made with.
        anew: bool,
    },
    /// This connection is about an image that was opened earlier.
    Attach {
        /// The entry.
        key: String,
        /// The number of its file. Another one may have its name by now.
        inode: u64,
    },
    /// Is all of such an image there, and was it compared with what it should be? The answer comes when that is known.
    Whole {
        /// The entry.
        key: String,
        /// The number of its file.
        inode: u64,
    },
    /// These bytes are wanted.
    Want {
        /// The first byte.
        start: u64,
        /// The byte behind the last.
        end: u64,
        /// How urgent they are.
        class: Class,
    },
    /// These bytes are not those of the hash tree. Get them again.
    Renew {
        /// The first byte.
        start: u64,
        /// The byte behind the last.
        end: u64,
    },
    /// What the user has for this registry, object store or web server. There is no answer.
    Login {
        /// Its host or its name, as [`Tell::Login`] has it, or [`RemoteUrl::origin`](crate::RemoteUrl::origin).
        registry: String,
        /// None if the user has nothing.
        credential: Option<Credential>,
    },
    /// Where is the hot pack that somebody has pushed for this image?
    Referrer {
        /// The name of the image in a registry.
        url: String,
        /// The digest of its manifest, with `sha256:`.
        subject: String,
    },
    /// What has cosign signed of this manifest?
    Cosigned {
        /// The name of the image in a registry.
        url: String,
        /// The digest of its manifest, with `sha256:`.
        subject: String,
    },
    /// Sends a file to a registry. Only [`Job`](crate::Job) asks this.
    Push(Upload),
    /// Sends a list of manifests that the registry has. Only [`Job`](crate::Job) asks this.
    PushIndex {
        /// The name in the registry.
        url: String,
        /// The text of the list.
        text: String,
    },
    /// Fetches a container image. Only [`Job`](crate::Job) asks this.
    Pull(Download),
    /// Is the image of this URL still the newest? Nobody waits for the answer.
    Refresh {
        /// The URL.
        url: String,
    },
}

/// A message of the fetcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tell {
    /// The surroundings are the fetcher's own.
    Welcome,
    /// They are others, and nobody needs the fetcher, so it ends. Start another one.
    Leaving,
    /// What the server said.
    Resolved(Resolved),
    /// The image can be read.
    Opened(Opened),
    /// Bytes that were wanted are there.
    Here {
        /// The first byte.
        start: u64,
        /// The byte behind the last.
        end: u64,
    },
    /// Bytes that were wanted do not come.
    Failed {
        /// The first byte.
        start: u64,
        /// The byte behind the last.
        end: u64,
        /// Why.
        why: String,
    },
    /// All of an image is there, and is what it should be.
    Whole,
    /// A registry wants to know who asks, or an object store is asked for the first time. Send what the user has, and ask again.
    Login {
        /// Its host, or what [`ObjectName::store`](crate::ObjectName::store) names.
        registry: String,
    },
    /// So many bytes more were sent or fetched.
    Moved {
        /// Their number.
        bytes: u64,
    },
    /// What cosign has signed of a manifest: nothing, if there is none.
    Cosigned(Vec<Cosigned>),
    /// It is done, or found.
    Done {
        /// The digest of the manifest, with `sha256:`.
        digest: String,
        /// The host that gives tokens for the registry, if that is another one.
        realm: Option<String>,
    },
    /// What was asked is not done.
    Refused {
        /// Why, and what to do.
        why: String,
    },
}

impl Ask {
    /// Wants `bytes`.
    pub fn want(bytes: Range<u64>, class: Class) -> Self {
        Self::Want {
            start: bytes.start,
            end: bytes.end,
            class,
        }
    }
}

/// Writes a message.
pub fn write_line(mut out: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    out.write_all(&line)
}

/// The message in a line.
///
/// # Errors
///
/// `InvalidData` for what is no message, or too long.
pub fn parse_line<T: for<'de> Deserialize<'de>>(line: &[u8]) -> io::Result<T> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if line.len() > MOST_LINE {
        return Err(invalid(format!(
            "a message has {} bytes, allowed are {MOST_LINE}",
            line.len()
        )));
    }
    serde_json::from_slice(line).map_err(|e| invalid(e.to_string()))
}
