//! The kernel programs' own messages. On the running kernel; as root. Alone in its file, since the logger is the process's.

use std::sync::Mutex;

use anyhow::Result;
use enginetap::probe::Options;
use enginetap_tests::live::Live;
use log::{LevelFilter, Log, Metadata, Record};

struct Kept(Mutex<Vec<String>>);

static KEPT: Kept = Kept(Mutex::new(Vec::new()));

impl Log for Kept {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if let Ok(mut kept) = self.0.lock() {
            kept.push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

const SCRIPT: &str = "ready()\nclient, server = pair()\nclient.close()";

#[test]
fn the_kernel_programs_say_what_they_do_when_asked_and_nothing_else() -> Result<()> {
    log::set_logger(&KEPT).ok();
    log::set_max_level(LevelFilter::Debug);
    let said = |debug: bool| -> Result<Vec<String>> {
        let mut live = Live::load(&Options { debug, ..Options::default() })?;
        let mut script = live.script(SCRIPT)?;
        script.go()?;
        live.finish(&mut script)?;
        live.round()?;
        let mut kept = KEPT.0.lock().unwrap();
        Ok(kept.drain(..).filter(|line| line.contains("process") && line.contains("connection")).collect())
    };
    let lines = said(true)?;
    for word in ["opened", "accepted", "closed"] {
        assert!(lines.iter().any(|line| line.contains(word)), "{word} is not among {lines:?}");
    }
    assert_eq!(said(false)?, Vec::<String>::new());
    Ok(())
}
