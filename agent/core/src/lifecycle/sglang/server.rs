//! One SGLang server.

use crate::capture::fact;
use crate::dialect::signal::ApiSignal;
use crate::ids::Pid;
use crate::lifecycle::Context;
use crate::model::metric::Point;
use crate::time::{Clock, MonoTime, WallTime};

/// One server. Filled by the commits that follow.
#[derive(Debug)]
pub(in crate::lifecycle) struct Server {
    pub fact: fact::Server,
}

impl Server {
    pub fn new(fact: fact::Server, _clock: Clock) -> Self {
        Self { fact }
    }

    pub fn open(&self) -> usize {
        0
    }

    pub fn api(&mut self, _pid: Pid, _signal: ApiSignal, _context: &mut Context<'_>) {}

    pub fn gone(&mut self, _pid: Pid, _at: MonoTime, _context: &mut Context<'_>) {}

    pub fn detached(&mut self, _at: MonoTime, _context: &mut Context<'_>) {}

    pub fn tick(&mut self, _now: MonoTime, _context: &mut Context<'_>) {}

    pub fn points(&self, _at: WallTime) -> Vec<Point> {
        Vec::new()
    }
}
