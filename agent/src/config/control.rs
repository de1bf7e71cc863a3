//! The control socket: a Unix socket that only root (or the agent's own user) may use.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::UnixStream as Blocking;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::Mode;
use rustix::process::{geteuid, umask};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::order::{Answer, Order};
use crate::exit::Refusal;

/// Most bytes of an order.
const ORDER_LIMIT: u64 = 64 * 1024;
/// Most time for an order to come, and for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// An order that waits for its answer.
#[derive(Debug)]
pub struct Asked {
    /// The order.
    pub order: Order,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Answer>,
}

/// The socket; it is removed at the end.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Makes the socket and listens on it. Must be called in the context of a runtime.
    ///
    /// # Errors
    /// When another agent listens there, or the socket cannot be made.
    pub fn start(path: &Path, orders: mpsc::Sender<Asked>) -> Result<Self> {
        let listener = bind(path)?;
        tokio::spawn(serve(listener, orders));
        Ok(Self { path: path.to_owned() })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Somebody may have removed it before.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn bind(path: &Path) -> Result<UnixListener> {
    let what = || format!("cannot make the control socket {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(what)?;
    }
    if Blocking::connect(path).is_ok() {
        let next = "stop it, or give this one another socket (`control.socket`)";
        return Err(
            Refusal::usage(format!("an enginetap listens at {} already", path.display()), next).into()
        );
    }
    if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        // An agent that was killed left it.
        std::fs::remove_file(path).with_context(what)?;
    }
    let before = umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    umask(before);
    bound.with_context(what)
}

async fn serve(listener: UnixListener, orders: mpsc::Sender<Asked>) {
    loop {
        match listener.accept().await {
            // One after the other: an operator can wait, and a crowd must not grow.
            Ok((stream, _)) => match timeout(PATIENCE, converse(stream, &orders)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => log::debug!("control socket: {error}"),
                Err(_) => log::debug!("control socket: nothing came"),
            },
            Err(error) => {
                log::debug!("the control socket cannot accept: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: UnixStream, orders: &mpsc::Sender<Asked>) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    let (reader, mut writer) = stream.into_split();
    let answer = if peer == 0 || peer == geteuid().as_raw() {
        let mut line = String::new();
        tokio::io::BufReader::new(reader.take(ORDER_LIMIT)).read_line(&mut line).await?;
        ask(&line, orders).await
    } else {
        Answer::refused("only root may")
    };
    let text = serde_json::to_string(&answer).map_err(io::Error::other)?;
    writer.write_all(format!("{text}\n").as_bytes()).await
}

async fn ask(line: &str, orders: &mpsc::Sender<Asked>) -> Answer {
    let order = match serde_json::from_str(line) {
        Ok(order) => order,
        Err(error) => return Answer::refused(format!("no order: {error}")),
    };
    let (answer, answered) = oneshot::channel();
    if orders.send(Asked { order, answer }).await.is_err() {
        return Answer::refused("the agent is ending");
    }
    answered.await.unwrap_or_else(|_| Answer::refused("the agent is ending"))
}

/// Sends an order to the agent that listens at a path.
///
/// # Errors
/// When none does, or it does not answer.
pub fn send(path: &Path, order: &Order) -> Result<Answer> {
    let stream = Blocking::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_string(order)?;
    line.push('\n');
    (&stream).write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer)?;
    serde_json::from_str(&answer).context("the agent's answer cannot be read")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    async fn agent(path: &Path) -> (Control, tokio::task::JoinHandle<()>) {
        let (orders, mut asked) = mpsc::channel::<Asked>(1);
        let control = Control::start(path, orders).unwrap();
        let obeying = tokio::spawn(async move {
            while let Some(Asked { order, answer }) = asked.recv().await {
                let _ = answer.send(Answer::done(format!("{order:?}")));
            }
        });
        (control, obeying)
    }

    async fn say(path: &Path, text: &'static str) -> String {
        let path = path.to_owned();
        let exchange = move || {
            let mut stream = Blocking::connect(path).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            io::read_to_string(stream).unwrap()
        };
        tokio::task::spawn_blocking(exchange).await.unwrap()
    }

    #[tokio::test]
    async fn an_order_is_answered_and_the_socket_is_its_owners_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/control.sock");
        let (control, _obeying) = agent(&path).await;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let at = path.clone();
        let answer = tokio::task::spawn_blocking(move || send(&at, &Order::Reload)).await.unwrap().unwrap();
        assert_eq!(answer, Answer::done("Reload"));
        drop(control);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn rubbish_is_answered_and_the_next_order_is_heard() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let (_control, _obeying) = agent(&path).await;
        for rubbish in ["", "\n", "{}\n", "{\"order\":\"fly\"}\n"] {
            assert!(say(&path, rubbish).await.contains("\"done\":false"), "{rubbish:?}");
        }
        assert!(say(&path, "{\"order\":\"reload\"}\n").await.contains("\"done\":true"));
    }

    #[tokio::test]
    async fn a_socket_left_by_a_killed_agent_is_replaced_that_of_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let (_control, _obeying) = agent(&path).await;
        let (orders, _asked) = mpsc::channel(1);
        let error = Control::start(&path, orders).unwrap_err();
        assert!(error.to_string().contains("listens at"), "{error}");
    }
}
