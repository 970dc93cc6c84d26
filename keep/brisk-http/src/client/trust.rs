use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_platform_verifier::Verifier;

/// Trusts what the system trusts, or certificates of its own. It reads them when the first server shows its own: that takes
/// some milliseconds and a thousand system calls, which a client of plain HTTP does not need.
pub(super) struct Trust {
    provider: Arc<CryptoProvider>,
    /// In place of those of the system.
    roots: Option<PathBuf>,
    verifier: OnceLock<Result<Arc<dyn ServerCertVerifier>, Error>>,
}

impl Trust {
    pub(super) fn new(provider: Arc<CryptoProvider>, roots: Option<PathBuf>) -> Self {
        Self {
            provider,
            roots,
            verifier: OnceLock::new(),
        }
    }

    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
    }

    fn read(&self) -> Result<Arc<dyn ServerCertVerifier>, Error> {
        let provider = Arc::clone(&self.provider);
        let Some(roots) = &self.roots else {
            return Ok(Arc::new(Verifier::new(provider)?));
        };
        let wrong = |why: &dyn fmt::Display| {
            let roots = roots.display();
            Error::General(format!("the certificates of {roots}: {why}"))
        };
        let mut store = RootCertStore::empty();
        let files = files(roots).map_err(|e| wrong(&e))?;
        for file in files {
            let certificates = CertificateDer::pem_file_iter(&file).map_err(|e| wrong(&e))?;
            // Bundles have what no root is, and other tools pass over it, too.
            store.add_parsable_certificates(certificates.filter_map(Result::ok));
        }
        if store.is_empty() {
            return Err(wrong(&"there is none in PEM; name another file"));
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider);
        Ok(verifier.build().map_err(|e| wrong(&e))?)
    }
}

/// A file, or those of a directory.
fn files(roots: &Path) -> io::Result<Vec<PathBuf>> {
    if !roots.is_dir() {
        return Ok(vec![roots.to_owned()]);
    }
    let paths = fs::read_dir(roots)?.map(|entry| entry.map(|entry| entry.path()));
    let paths: Vec<PathBuf> = paths.collect::<io::Result<_>>()?;
    Ok(paths.into_iter().filter(|path| path.is_file()).collect())
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verifier = self.verifier.get_or_init(|| self.read()).as_ref();
        verifier.map_err(Clone::clone)?.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, self.algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, self.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust")
            .field("roots", &self.roots)
            .finish_non_exhaustive()
    }
}
