//! A certificate for servers under test.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tempfile::TempDir;

/// A certificate of `localhost`, signed by itself, and its key: files that go with this value.
pub struct Certificate {
    folder: TempDir,
    der: CertificateDer<'static>,
}

impl Certificate {
    /// Makes one.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn new() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let certificate = Self { folder: tempfile::tempdir()?, der: made.cert.der().clone() };
        std::fs::write(certificate.chain(), made.cert.pem())?;
        std::fs::write(certificate.key(), made.signing_key.serialize_pem())?;
        Ok(certificate)
    }

    /// The certificate's file.
    #[must_use]
    pub fn chain(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    /// The key's file.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// The options by which a server serves HTTPS with it: both engines know them.
    #[must_use]
    pub fn options(&self) -> [String; 4] {
        let path = |path: PathBuf| path.display().to_string();
        ["--ssl-certfile".to_owned(), path(self.chain()), "--ssl-keyfile".to_owned(), path(self.key())]
    }

    /// The client's end of a connection to a server that has it, which trusts nothing else.
    ///
    /// # Errors
    /// When the certificate is none that can be trusted.
    pub fn client(&self) -> Result<ClientConnection> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(ClientConnection::new(Arc::new(config), "localhost".try_into()?)?)
    }
}
