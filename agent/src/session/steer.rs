//! A live session's settings: orders that change them, and letting them hold.

use std::time::Instant;

use anyhow::Result;
use tokio::sync::mpsc;

use super::clock;
use super::follow::LineChanges;
use super::live::Live;
use crate::config::control::Asked;
use crate::config::order::Order;

impl Live {
    /// Does what an operator orders.
    pub(super) fn obey(&mut self, asked: Asked) {
        let Asked { order, answer } = asked;
        let follow = &self.follow;
        let said = self.steering.obey(&order, Instant::now(), &|pid| follow.server_of(pid));
        match (&order, said.done) {
            (Order::Show { .. }, _) => {}
            (Order::Set { .. } | Order::Unset { .. } | Order::Reload, true) => {
                log::info!("{}", said.text);
                self.steer();
            }
            (Order::Set { .. } | Order::Unset { .. }, false) => log::warn!("{}", said.text),
            (Order::Reload, false) => log::error!("{}", said.text),
        }
        // Whoever asked may have left.
        let _ = answer.send(said);
    }

    /// Reads the configuration file again.
    pub(super) fn reload(&mut self) {
        match self.steering.reload() {
            Ok(_) => self.steer(),
            Err(error) => log::error!("{error:#}; what it said before holds on"),
        }
    }

    /// Lets the settings as they are now hold.
    fn steer(&mut self) {
        let Self { feed, follow, steering, objects, .. } = self;
        objects.want_steps(steering.steps());
        feed.set(steering.common());
        for (server, settings) in steering.servers() {
            feed.set_server(server, settings);
        }
        for (server, vocabulary) in follow.want_texts(steering.texts()) {
            feed.vocabulary(server, vocabulary);
        }
        follow.hurry(clock().mono);
        if let Err(error) = self.lines() {
            log::error!("{error:#}; the log lines of engines are not seen");
        }
    }

    /// Lets it hold of which servers the engine's own log lines are wanted.
    pub(super) fn lines(&mut self) -> Result<()> {
        let Self { follow, steering, probe, .. } = self;
        let LineChanges { on, watch, unwatch, forget } =
            follow.want_lines(&|server, engine| steering.lines(server, engine));
        for (pid, fd) in forget {
            probe.forget(pid, fd)?;
        }
        for pid in unwatch {
            probe.unwatch(pid)?;
        }
        for pid in watch {
            probe.watch(pid)?;
        }
        self.adopt(&on)
    }

    /// Drops settings that have had their time.
    pub(super) fn expire(&mut self) {
        if self.steering.expire(Instant::now()) {
            self.steer();
        }
    }
}

/// The next order; never where none can come.
pub(super) async fn next(orders: &mut Option<mpsc::Receiver<Asked>>) -> Option<Asked> {
    match orders {
        Some(orders) => orders.recv().await,
        None => std::future::pending().await,
    }
}
