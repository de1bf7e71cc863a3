//! `enginetap why`.

mod text;

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow};
use enginetap_core::settings::Settings;
use enginetap_core::why::verdict::Verdict;
use serde::Serialize;

use super::attach::{plan, session};
use crate::cli;
use crate::cli::why::Why;
use crate::config::steering::Steering;
use crate::exit::{Exit, Refusal};
use crate::session::{Feed, Pick, Verdicts, replay};

/// The slowest so many, where nothing is asked.
const SLOWEST: u32 = 5;
/// Names told where one is not known.
const NEAREST: usize = 3;

/// Runs `enginetap why` to its end.
///
/// # Errors
/// Whatever stopped it; a [`Refusal`] where there is no such request, or none at all.
pub fn run(args: &Why) -> Result<Exit> {
    let pick = pick(args);
    let verdicts = Arc::new(Mutex::new(Verdicts::new(pick.clone())));
    // Prompts and outputs are of no interest here.
    let settings = Settings { content: false, ..Settings::default() };
    let feed = Feed::new(settings, None, None).with_verdicts(Arc::clone(&verdicts));
    watch(args, feed)?;
    let mut verdicts = verdicts.lock().map_err(|_| anyhow!("the verdicts were lost: a thread panicked"))?;
    refuse_nothing(&pick, &mut verdicts, args)?;
    let answer = if args.json { json(&mut verdicts)? } else { text::answer(&pick, &mut verdicts) };
    let mut out = std::io::stdout().lock();
    match out.write_all(answer.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Exit::Done),
        written => written.context("writing the answer").map(|()| Exit::Done),
    }
}

/// Fills the feed: from a capture, or from running servers.
fn watch(args: &Why, mut feed: Feed) -> Result<()> {
    if let Some(file) = &args.capture {
        replay(file, &mut feed)?;
        return feed.close(0).map(drop);
    }
    let target = cli::Target { pid: args.pid.clone(), duration: args.duration, until_exit: true };
    session(plan(&target, &args.kernel, &args.gpus, false, Steering::default())?, feed).map(drop)
}

fn pick(args: &Why) -> Pick {
    let Why { request, slowest, by, ttft_over, e2e_over, .. } = args;
    match (request, ttft_over, e2e_over) {
        (Some(name), ..) => Pick::Called(name.clone()),
        (None, None, None) => {
            let count = slowest.unwrap_or(SLOWEST);
            Pick::Slowest(usize::try_from(count).unwrap_or(usize::MAX), *by)
        }
        (None, ttft, e2e) => Pick::Over { ttft: *ttft, e2e: *e2e },
    }
}

/// Where there is nothing to say of, what to do instead.
fn refuse_nothing(pick: &Pick, verdicts: &mut Verdicts, args: &Why) -> Result<(), Refusal> {
    if verdicts.seen == 0 {
        let next = match args.capture {
            Some(_) => "record while requests are served: `enginetap record -o FILE --for 30s`",
            None => "send some meanwhile, or watch longer (`--for 5m`)",
        };
        return Err(Refusal::missing("no request ended in what was seen", next));
    }
    let Pick::Called(name) = pick else { return Ok(()) };
    if verdicts.kept().is_empty() {
        let near = verdicts.nearest(name, NEAREST).join(", ");
        let what = format!("no request is called {name} ({} were seen)", verdicts.seen);
        return Err(Refusal::missing(what, format!("the likest: {near}; `--slowest 5` shows others")));
    }
    Ok(())
}

/// A request in JSON.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    verdict: &'a Verdict,
    ttft_sentence: Option<String>,
    e2e_sentence: String,
    why: String,
    advice: Vec<&'static str>,
}

fn json(verdicts: &mut Verdicts) -> Result<String> {
    let requests: Vec<serde_json::Value> = verdicts
        .kept()
        .iter()
        .map(|verdict| {
            serde_json::to_value(Told {
                verdict,
                ttft_sentence: verdict.to_first(),
                e2e_sentence: verdict.to_end(),
                why: verdict.because(),
                advice: verdict.causes.iter().map(|blame| blame.cause.def().advice).collect(),
            })
        })
        .collect::<Result<_, _>>()?;
    let Verdicts { seen, held_up, causes, forgotten, .. } = &*verdicts;
    let causes: std::collections::BTreeMap<&str, _> =
        causes.iter().map(|(cause, found)| (cause.name(), found)).collect();
    let all = serde_json::json!({
        "requests": requests, "seen": seen, "held_up": held_up, "causes": causes, "forgotten": forgotten,
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}
