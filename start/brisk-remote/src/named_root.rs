//! What a digest in a URL vouches for.

use sha2::{Digest, Sha256};

use crate::artifact::{Artifact, Index};
use crate::descriptor::Descriptor;
use crate::hex::digits;
use crate::protocol::Resolved;
use crate::remote_url::RemoteUrl;

impl Resolved {
    /// The manifest whose digest is in the URL, or in the list whose digest is there. None if it is another one: what the registry, and
    /// the process that asked it, say of digests is not believed.
    pub fn manifest_by_digest(&self, url: &RemoteUrl) -> Option<&str> {
        let (name, text) = (url.registry()?, self.manifest.as_deref()?);
        let digest = |text: &str| format!("sha256:{}", digits(&Sha256::digest(text)));
        let found = digest(text);
        let list = self.index.as_deref();
        let list = list.filter(|list| name.digest() == Some(&*digest(list)));
        let is_listed = list
            .and_then(Index::parse)
            .is_some_and(|index| index.has(&found));
        (is_listed || name.digest() == Some(&*found)).then_some(text)
    }

    /// The root hash that this manifest names.
    pub fn root_by_digest(&self, url: &RemoteUrl) -> Option<String> {
        let artifact = Artifact::parse(self.manifest_by_digest(url)?).ok()?;
        Descriptor::parse(&artifact.descriptor?).ok()?.root_hash
    }
}
