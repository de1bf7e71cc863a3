//! Colours, where they are wanted.

use anstyle::{AnsiColor, Style};

/// What a piece of text is, as far as colour goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// Ordinary.
    Plain,
    /// Less important than the rest.
    Dim,
    /// Worth a look.
    Notice,
    /// An error.
    Bad,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Dim => Style::new().dimmed(),
            Self::Notice => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default(),
        }
    }
}

/// Paints, or does not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint(pub(super) bool);

impl Paint {
    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        if !self.0 || tone == Tone::Plain || text.is_empty() {
            return text.to_owned();
        }
        let style = tone.style();
        format!("{style}{text}{style:#}")
    }
}
