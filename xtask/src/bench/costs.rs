//! What the windows say of the agent's cost, as figures.

use super::attached::SelfStats;
use super::figures::{Figure, estimate, figure, median, real, spread};
use super::ticks::Progress;
use super::windows::{Watched, Windows};
use crate::engines::Engine;

impl Watched {
    /// A total in nanoseconds as microseconds an output token.
    fn per_token(&self, total: Option<u64>) -> Option<f64> {
        Some(real(total?) / self.whole.tokens.max(1.0) / 1000.0)
    }

    /// Runs of the kernel programs an output token. They run at every system call of the machine, so whatever else
    /// is busy on it counts too.
    fn runs_per_token(&self) -> Option<f64> {
        Some(real(self.own.kernel_calls?) / self.whole.tokens.max(1.0))
    }

    fn ns_per_run(&self) -> Option<f64> {
        Some(real(self.own.kernel_ns?) / real(self.own.kernel_calls.filter(|calls| *calls > 0)?))
    }

    /// A total in nanoseconds as microseconds a request.
    fn per_request(&self, total: Option<u64>) -> Option<f64> {
        Some(real(total?) / self.whole.requests.max(1.0) / 1000.0)
    }

    /// A total in nanoseconds as microseconds a kilobyte of payload; over HTTPS that is plain text.
    fn per_kilobyte(&self, total: Option<u64>) -> Option<f64> {
        let bytes = self.own.bytes.filter(|bytes| *bytes > 0)?;
        Some(real(total?) / real(bytes) * 1.024)
    }

    fn resident_mib(&self) -> Option<f64> {
        self.own.rss_bytes.map(|bytes| real(bytes) / 1_048_576.0)
    }
}

fn speeds(windows: &[Progress]) -> Vec<f64> {
    windows.iter().map(Progress::speed).collect()
}

/// Output tokens a second with and without the agent. `what` names the load.
pub fn ratios(what: &str, windows: &Windows) -> Vec<Figure> {
    let Windows { plain, watched } = windows;
    let watched: Vec<f64> = watched.iter().map(|window| window.got.speed()).collect();
    let plain = speeds(plain);
    let ratios: Vec<f64> = watched.iter().zip(&plain).map(|(with, without)| with / without).collect();
    vec![
        figure(format!("output tokens/s without the agent ({what})"), spread(&plain, 1), ""),
        figure(format!("output tokens/s with the agent ({what})"), spread(&watched, 1), ""),
        figure(format!("their ratio, mean of the pairs ({what})"), estimate(&ratios, 4), ">= 0.99"),
    ]
}

/// The same with the engine's own tracing, against the windows with nothing.
pub fn own_tracing(engine: Engine, plain: &[Progress], traced: &[Progress]) -> Figure {
    let (plain, traced) = (speeds(plain), speeds(traced));
    let ratio = median(&traced).zip(median(&plain)).map(|(with, without)| with / without);
    let ratio = ratio.map_or_else(String::new, |ratio| format!(", ratio {ratio:.4}"));
    let what = format!("the same with {}'s own OTel tracing instead (a start of its own)", engine.name());
    figure(what, format!("{}{ratio}", spread(&traced, 1)), "")
}

/// What each token, request, attach and detach costs; `crowd` is a window with that many `streams` at once.
pub fn each(watched: &[Watched], crowd: &Watched, streams: u32) -> Vec<Figure> {
    let each = |of: fn(&Watched) -> Option<f64>| watched.iter().filter_map(of).collect::<Vec<f64>>();
    let lost: u64 = watched.iter().filter_map(|window| window.own.lost).sum();
    let records: u64 = watched.iter().filter_map(|window| window.own.records).sum();
    let mut figures = kernel(watched);
    figures.extend([
        figure(
            "agent CPU per output token, us",
            spread(&each(|window| window.per_token(window.own.watch_cpu_ns)), 2),
            "<= 10",
        ),
        figure(
            "agent CPU to attach, ms",
            spread(&each(|window| milliseconds(window.own.attach_cpu_ns)), 0),
            "",
        ),
        figure("agent's largest resident memory, MiB", spread(&each(Watched::resident_mib), 1), ""),
        figure(
            format!("agent's largest resident memory, MiB ({streams} streams)"),
            spread(&crowd.resident_mib().into_iter().collect::<Vec<_>>(), 1),
            "<= 50 at 256 streams",
        ),
        figure("start to first probe, ms", spread(&each(|window| window.own.attach_ms), 0), "<= 300"),
        figure("detach, ms", spread(&each(|window| window.own.detach_ms), 0), "<= 300"),
        figure("records lost", format!("{lost} of {records}"), "0 at 100 k records/s"),
    ]);
    figures.extend(objects(watched));
    figures
}

/// The kernel programs' run time.
fn kernel(watched: &[Watched]) -> Vec<Figure> {
    let each = |of: fn(&Watched) -> Option<f64>| watched.iter().filter_map(of).collect::<Vec<f64>>();
    vec![
        figure(
            "BPF run time per output token, us",
            spread(&each(|window| window.per_token(window.own.kernel_ns)), 2),
            "<= 5 where a tracepoint costs 50 ns",
        ),
        figure(
            "BPF run time per request, us",
            spread(&each(|window| window.per_request(window.own.kernel_ns)), 1),
            "",
        ),
        figure(
            "BPF runs per output token, those for other processes included",
            spread(&each(Watched::runs_per_token), 1),
            "",
        ),
        figure(
            "BPF run time per kilobyte taken, us",
            spread(&each(|window| window.per_kilobyte(window.own.kernel_ns)), 2),
            "",
        ),
        figure("BPF run time per run, ns", spread(&each(Watched::ns_per_run), 0), ""),
    ]
}

/// What reading the engine's own objects cost; nothing where none were read.
fn objects(watched: &[Watched]) -> Vec<Figure> {
    let read = |window: &&Watched| window.own.object_readings.is_some_and(|readings| readings > 0);
    let windows: Vec<&Watched> = watched.iter().filter(read).collect();
    if windows.is_empty() {
        return Vec::new();
    }
    let each = |of: fn(&Watched) -> Option<f64>| {
        windows.iter().filter_map(|window| of(window)).collect::<Vec<f64>>()
    };
    let sum =
        |of: fn(&SelfStats) -> Option<u64>| windows.iter().filter_map(|window| of(&window.own)).sum::<u64>();
    vec![
        figure(
            "reading the engine's objects, CPU per request, us",
            spread(&each(|window| window.per_request(window.own.object_ns)), 1),
            "",
        ),
        figure(
            "the same per reading, us",
            spread(
                &each(|window| {
                    Some(real(window.own.object_ns?) / real(window.own.object_readings?) / 1000.0)
                }),
                1,
            ),
            "",
        ),
        figure(
            "object reads refused, since they had changed",
            format!("{} in {} readings", sum(|own| own.object_refused), sum(|own| own.object_readings)),
            "",
        ),
    ]
}

fn milliseconds(nanoseconds: Option<u64>) -> Option<f64> {
    nanoseconds.map(|nanoseconds| real(nanoseconds) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn got(tokens: f64) -> Progress {
        Progress { seconds: 1.0, tokens, requests: 10.0 }
    }

    #[test]
    fn costs_are_per_token_and_per_request() {
        let own = SelfStats {
            kernel_ns: Some(200_000),
            bytes: Some(20_480),
            watch_cpu_ns: Some(1_000_000),
            ..SelfStats::default()
        };
        let watched = Watched { got: got(99.0), whole: got(100.0), own };
        let figures = each(std::slice::from_ref(&watched), &watched, 256);
        let value = |what: &str| figures.iter().find(|f| f.what.starts_with(what)).unwrap().value.clone();
        assert!(value("BPF run time per output token").starts_with("2.00 "));
        assert!(value("BPF run time per request").starts_with("20.0 "));
        assert!(value("BPF run time per kilobyte taken").starts_with("10.00 "));
        assert!(value("agent CPU").starts_with("10.00 "));
        assert_eq!(value("detach"), "not measured");
    }

    #[test]
    fn the_ratio_is_the_mean_of_the_pairs() {
        let watched = |tokens| Watched { got: got(tokens), whole: got(tokens), own: SelfStats::default() };
        let windows =
            Windows { plain: vec![got(100.0), got(200.0)], watched: vec![watched(99.0), watched(202.0)] };
        let figures = ratios("a load", &windows);
        assert!(figures[2].value.starts_with("1.0000 +- "), "{:?}", figures[2]);
    }
}
