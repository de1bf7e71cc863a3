//! The vLLM V1 dialect: what API server and EngineCore tell each other.
//!
//! The same [`Decoder`] takes both directions, captured on either side: a message says by its shape what it is.
//! Mirrors `vllm/v1/engine/__init__.py` and `vllm/v1/serial_utils.py` of 0.8 to 0.33.

use crate::dialect::schema::Schema;
use crate::dialect::signal::EngineSignal;
use crate::loss::Losses;
use crate::time::MonoTime;

/// What to take out of messages beyond what every span needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Collect token ids and logprobs, of prompts and of outputs.
    pub token_ids: bool,
}

/// Turns messages into signals.
#[derive(Debug)]
pub struct Decoder {
    options: Options,
}

impl Decoder {
    /// A decoder for one server. Without a schema it goes by the version's, without that by shape.
    #[must_use]
    pub fn new(schema: Option<&Schema>, version: Option<&str>, options: Options) -> Self {
        let _ = (schema, version);
        Self { options }
    }

    /// What a message means. `None`: nothing that matters here (handshakes, notifications, other protocols).
    ///
    /// `frames` and `cut` as in [`Message`](crate::wire::zmtp::Message); `at`: when its last byte was moved.
    /// Counts messages that look like an engine's and are none that is known.
    pub fn decode(
        &mut self,
        frames: &[&[u8]],
        cut: bool,
        at: MonoTime,
        losses: &mut Losses,
    ) -> Option<EngineSignal> {
        let _ = (frames, cut, at, losses, self.options);
        None
    }
}
