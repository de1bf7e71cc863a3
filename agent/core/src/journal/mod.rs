//! The agent's own logs, and the engine's: requests, iterations, and lines of text with the span they belong to.
//!
//! It looks at the same signals and traces as the lifecycle, and changes nothing of them. A setting that is off costs a
//! look at it.

mod iterations;
mod lines;
mod requests;

use crate::capture::fact::Engine;
use crate::dialect::signal::sglang::SglangSignal;
use crate::dialect::signal::{ApiSignal, EngineSignal};
use crate::ids::{Pid, ServerId};
use crate::loss::{Loss, Losses};
use crate::model::log::{Log, Severity};
use crate::model::span::{Attribute, Trace, Value};
use crate::settings::Settings;
use crate::settings::log::LogSettings;
use crate::time::{Clock, MonoTime};

use iterations::Iterations;
use lines::Lines;
use requests::Requests;

/// Who a signal or a line is of.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The server.
    pub server: ServerId,
    /// What it runs.
    pub engine: Engine,
    /// The settings that hold for it.
    pub settings: &'a Settings,
    /// Both clocks.
    pub clock: Clock,
    /// Its requests that are open.
    pub open: usize,
}

impl About<'_> {
    fn log(&self) -> &LogSettings {
        self.settings.log_of(self.engine)
    }

    fn event(&self, name: &'static str, severity: Severity, at: MonoTime, body: String) -> Log {
        Log {
            server: self.server,
            event: Some(name),
            severity,
            at: self.clock.wall(at),
            context: None,
            body: Some(body),
            attributes: Vec::new(),
        }
    }
}

/// The logs of all servers.
#[derive(Debug, Default)]
pub struct Journal {
    requests: Requests,
    iterations: Iterations,
    lines: Lines,
    ready: Vec<Log>,
}

impl Journal {
    /// What the HTTP side of a server said.
    pub fn api(&mut self, about: &About<'_>, signal: &ApiSignal) {
        self.requests.api(about, signal, &mut self.ready);
    }

    /// What vLLM's sockets said.
    pub fn engine(&mut self, about: &About<'_>, pid: Pid, signal: &EngineSignal) {
        self.requests.engine(about, signal, &mut self.ready);
        self.iterations.engine(about, pid, signal, &mut self.ready);
    }

    /// What SGLang's sockets said.
    pub fn sglang(&mut self, about: &About<'_>, signal: &SglangSignal) {
        self.requests.sglang(about, signal, &mut self.ready);
    }

    /// A line that a process of a server wrote.
    pub fn line(&mut self, about: &About<'_>, bytes: &[u8], at: MonoTime, losses: &mut Losses) {
        let dropped = self.lines.take(about, bytes, at, &mut self.ready);
        losses.add(Loss::LineUnplaced, dropped);
    }

    /// A trace was made.
    pub fn trace(&mut self, trace: &Trace) {
        self.lines.trace(trace, &mut self.ready);
    }

    /// Time passes. `open`: the requests of a server that are open.
    pub fn tick(&mut self, now: MonoTime, open: &dyn Fn(ServerId) -> usize) {
        self.lines.tick(now, open, &mut self.ready);
    }

    /// Nothing more comes: what waits for its span goes as it is.
    pub fn finish(&mut self) {
        self.lines.finish(&mut self.ready);
    }

    /// A server is gone.
    pub fn forget(&mut self, server: ServerId) {
        self.requests.forget(server);
        self.iterations.forget(server);
        self.lines.forget(server, &mut self.ready);
    }

    /// The lines made since the last call.
    pub fn logs(&mut self) -> Vec<Log> {
        std::mem::take(&mut self.ready)
    }
}

fn set(log: &mut Log, key: &'static str, value: impl Into<Value>) {
    log.attributes.push(Attribute { key: key.into(), value: value.into() });
}

fn set_some(log: &mut Log, key: &'static str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        set(log, key, value);
    }
}

#[cfg(test)]
mod tests;
