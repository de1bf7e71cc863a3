//! TLS of a receiver: the system's roots, or the operator's files.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::exit::Refusal;
use crate::export::settings::TlsFiles;

/// The bytes of a PEM file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let next = "check OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY";
        Refusal::usage(format!("cannot read {}: {error}", path.display()), next).into()
    })
}

/// The client's certificate and key, where both are given.
pub(super) fn identity(files: &TlsFiles) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    match (&files.client_certificate, &files.client_key) {
        (Some(certificate), Some(key)) => Ok(Some((read(certificate)?, read(key)?))),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(Refusal::usage(
            "a client certificate needs its key, and a key its certificate",
            "set OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY, or neither",
        )
        .into()),
    }
}

/// A configuration for the HTTP client. Where TLS is not used, no root is needed.
pub(super) fn config(files: &TlsFiles, used: bool) -> Result<ClientConfig> {
    let roots = if used { roots(files)? } else { RootCertStore::empty() };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let Some((certificate, key)) = identity(files)? else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(&certificate).map_err(|error| unusable("the client certificate", &error))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| unusable("the client key", &error))?;
    Ok(builder.with_client_auth_cert(chain, key)?)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}

fn unusable(what: &str, error: &pem::Error) -> Refusal {
    Refusal::usage(format!("{what} is no PEM file: {error}"), "name a PEM file")
}

fn roots(files: &TlsFiles) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    let (certificates, from) = match &files.certificate {
        Some(path) => {
            let shown = path.display().to_string();
            (certificates(&read(path)?).map_err(|error| unusable(&shown, &error))?, shown)
        }
        None => (rustls_native_certs::load_native_certs().certs, "the system's certificate store".to_owned()),
    };
    let (added, _) = store.add_parsable_certificates(certificates);
    if added == 0 {
        let next = "install ca-certificates, or name a PEM file in OTEL_EXPORTER_OTLP_CERTIFICATE";
        return Err(Refusal::usage(format!("{from} holds no certificate to trust"), next).into());
    }
    Ok(store)
}
