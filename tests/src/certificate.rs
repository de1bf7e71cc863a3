//! A certificate for servers under test.

use std::path::PathBuf;

use anyhow::Result;
use tempfile::TempDir;

/// A certificate of `localhost`, signed by itself, and its key: files that go with this value.
pub struct Certificate(TempDir);

impl Certificate {
    /// Makes one.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn new() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let folder = Self(tempfile::tempdir()?);
        std::fs::write(folder.chain(), made.cert.pem())?;
        std::fs::write(folder.key(), made.signing_key.serialize_pem())?;
        Ok(folder)
    }

    /// The certificate's file.
    #[must_use]
    pub fn chain(&self) -> PathBuf {
        self.0.path().join("cert.pem")
    }

    /// The key's file.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.0.path().join("key.pem")
    }
}
