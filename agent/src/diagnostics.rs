//! The agent's own diagnostics: one line a message, on standard error, through the `log` facade.

use std::io::Write;
use std::time::Instant;

use log::{LevelFilter, Log, Metadata, Record};

struct Stderr {
    since: Instant,
}

/// Sends log messages of `level` and above to standard error. A second call changes only the level.
pub fn start(level: LevelFilter) {
    // An error means a logger is there already (a second call, a test): only the level changes then.
    let _ = log::set_boxed_logger(Box::new(Stderr { since: Instant::now() }));
    log::set_max_level(level);
}

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let at = self.since.elapsed().as_secs_f64();
            let level = record.level().as_str().to_ascii_lowercase();
            // Standard error gone is no reason to stop working.
            let _ =
                writeln!(std::io::stderr(), "[{at:9.3}] {level:5} {}: {}", record.target(), record.args());
        }
    }

    fn flush(&self) {}
}
