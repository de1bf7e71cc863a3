//! A certificate for servers over HTTPS.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::repo;

/// A certificate of `localhost`, signed by itself, and its key.
#[derive(Debug)]
pub struct Certificate {
    chain: PathBuf,
    key: PathBuf,
}

impl Certificate {
    /// Makes one, in the folder of the engines.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn make() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let folder = repo::engines()?.join("run");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let certificate = Self { chain: folder.join("certificate.pem"), key: folder.join("key.pem") };
        let write = |path: &PathBuf, text: String| {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write(&certificate.chain, made.cert.pem())?;
        write(&certificate.key, made.signing_key.serialize_pem())?;
        Ok(certificate)
    }

    /// The options by which a server serves HTTPS with it: both engines know them.
    #[must_use]
    pub fn options(&self) -> [String; 4] {
        let path = |path: &PathBuf| path.display().to_string();
        ["--ssl-certfile".to_owned(), path(&self.chain), "--ssl-keyfile".to_owned(), path(&self.key)]
    }
}
