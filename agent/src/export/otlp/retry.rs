//! When to try again: the rules of the OTLP specification.

use std::time::Duration;

use tokio::time::sleep;

use super::client::{Accepted, Failure};

/// Exponential backoff: the first wait and the longest one. Each wait is spread by half of itself either way, so
/// that many agents do not come back at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), longest: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// How long to wait after `failures` of them in a row (from 1).
    fn wait(self, failures: u32) -> Duration {
        let doubled = self.first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
        doubled.min(self.longest).mul_f64(0.5 + fastrand::f64())
    }
}

/// Tries until the receiver accepts, or fails for good: `None`, with the reason in `why`. The reason of the last
/// failure is there too when the caller gives up waiting.
pub(super) async fn until_accepted<F>(
    backoff: Backoff,
    why: &mut Option<String>,
    mut attempt: impl FnMut() -> F,
) -> Option<Accepted>
where
    F: Future<Output = Result<Accepted, Failure>>,
{
    for failures in 1.. {
        match attempt().await {
            Ok(accepted) => return Some(accepted),
            Err(Failure::Final(reason)) => {
                *why = Some(reason);
                return None;
            }
            Err(Failure::Passing { reason, after }) => {
                log::debug!("OTLP: {reason}; trying again");
                *why = Some(reason);
                sleep(after.unwrap_or_else(|| backoff.wait(failures))).await;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_spread() {
        let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(8) };
        for (failures, middle) in [(1, 1.0), (2, 2.0), (4, 8.0), (5, 8.0), (u32::MAX, 8.0)] {
            let wait = backoff.wait(failures).as_secs_f64();
            assert!((middle * 0.5..=middle * 1.5).contains(&wait), "{failures}: {wait}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_passing_failure_is_tried_again_and_a_final_one_is_not() {
        let mut answers = vec![
            Ok(Accepted::default()),
            Err(Failure::Passing { reason: "busy".into(), after: Some(Duration::from_secs(3)) }),
        ];
        let (mut why, start) = (None, tokio::time::Instant::now());
        let accepted = until_accepted(Backoff::default(), &mut why, || {
            let answer = answers.pop().unwrap();
            async { answer }
        });
        assert!(accepted.await.is_some());
        assert_eq!(start.elapsed(), Duration::from_secs(3));

        let refused = async || Err(Failure::Final("bad".into()));
        assert!(until_accepted(Backoff::default(), &mut why, refused).await.is_none());
        assert_eq!(why.as_deref(), Some("bad"));
    }
}
