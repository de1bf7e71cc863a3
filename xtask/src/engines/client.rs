//! The little HTTP that the tasks themselves speak with a server.

use std::time::Duration;

use anyhow::{Context, Result};

/// The body that a GET gives.
///
/// # Errors
/// When there is no answer within five seconds or its status is not 2xx.
pub fn get(url: &str) -> Result<String> {
    let agent =
        ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(5))).build().new_agent();
    let mut answer = agent.get(url).call().with_context(|| format!("no answer from {url}"))?;
    answer.body_mut().read_to_string().with_context(|| format!("the answer of {url} cannot be read"))
}

/// A port of 127.0.0.1 that nobody listens on.
///
/// # Errors
/// When there is none.
pub fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("there is no free port")?;
    Ok(listener.local_addr()?.port())
}
