//! The root hash that a digest in a URL vouches for.

use sha2::{Digest, Sha256};

use crate::artifact::{Artifact, Index};
use crate::descriptor::Descriptor;
use crate::hex::digits;
use crate::protocol::Resolved;
use crate::remote_url::RemoteUrl;

impl Resolved {
    /// The root hash that the manifest names whose digest is in the URL, or in the list whose digest is there. What the registry says of
    /// digests is not believed.
    pub fn root_by_digest(&self, url: &RemoteUrl) -> Option<String> {
        let (name, text) = (url.registry()?, self.manifest.as_deref()?);
        let digest = |text: &str| format!("sha256:{}", digits(&Sha256::digest(text)));
        let found = digest(text);
        let list = self.index.as_deref();
        let list = list.filter(|list| name.digest() == Some(&*digest(list)));
        let is_listed = list
            .and_then(Index::parse)
            .is_some_and(|index| index.has(&found));
        let is_named = is_listed || name.digest() == Some(&*found);
        let artifact = Artifact::parse(text).ok().filter(|_| is_named)?;
        Descriptor::parse(&artifact.descriptor?).ok()?.root_hash
    }
}
