//! Text for people: durations, counts, cut and cleaned strings.

use enginetap_core::time::Nanos;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Text from outside with nothing in it that a terminal acts on: a client chooses model names and ids.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_format(c) { '\u{fffd}' } else { c }).collect()
}

/// Characters that change the direction of text or hide in it.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Columns a text takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// Cut to a number of columns, with an ellipsis where something was cut.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > columns {
            break;
        }
        used += wide;
        out.push(c);
    }
    if columns > 0 {
        out.push('…');
    }
    out
}

/// Filled with blanks to a number of columns.
pub(super) fn pad(text: &str, columns: usize, right: bool) -> String {
    let blanks = " ".repeat(columns.saturating_sub(width(text)));
    if right { format!("{blanks}{text}") } else { format!("{text}{blanks}") }
}

/// A length of time in at most 6 columns: three digits up to a minute.
pub(super) fn duration(Nanos(nanos): Nanos) -> String {
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = nanos as f64;
    match nanos {
        0 => "0".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..999_500 => format!("{}µs", digits(value / 1e3)),
        999_500..999_500_000 => format!("{}ms", digits(value / 1e6)),
        999_500_000..59_950_000_000 => format!("{}s", digits(value / 1e9)),
        59_950_000_000.. => {
            let seconds = nanos.saturating_add(500_000_000) / 1_000_000_000;
            match seconds / 60 {
                minutes @ 0..60 => format!("{minutes}m{:02}s", seconds % 60),
                minutes => format!("{}h{:02}m", minutes / 60, minutes % 60),
            }
        }
    }
}

/// Three significant digits.
fn digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// A rate or large count in at most 5 columns.
pub(super) fn quantity(value: f64) -> String {
    match value {
        v if v < 9.95 && v > 0.0 => format!("{v:.1}"),
        v if v < 9_999.5 => format!("{v:.0}"),
        v if v < 999_950.0 => format!("{:.1}k", v / 1e3),
        v => format!("{:.1}M", v / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_have_three_digits_and_fit_six_columns() {
        for (nanos, text) in [
            (0, "0"),
            (999, "999ns"),
            (1_234, "1.23µs"),
            (999_499, "999µs"),
            (999_500, "1.00ms"),
            (12_345_678, "12.3ms"),
            (999_499_999, "999ms"),
            (1_000_000_000, "1.00s"),
            (59_949_000_000, "59.9s"),
            (59_950_000_000, "1m00s"),
            (3_599_400_000_000, "59m59s"),
            (3_600_000_000_000, "1h00m"),
        ] {
            assert_eq!(duration(Nanos(nanos)), text);
            assert!(width(text) <= 6);
        }
        assert!(!duration(Nanos(u64::MAX)).is_empty());
    }

    #[test]
    fn a_terminal_acts_on_nothing_that_comes_from_outside() {
        assert_eq!(clean("a\x1b[31mb\r\n\u{202e}c"), "a\u{fffd}[31mb\u{fffd}\u{fffd}\u{fffd}c");
    }

    #[test]
    fn text_is_cut_by_columns_not_characters() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("模型名称", 5), "模型…");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(pad("模", 4, true), "  模");
    }

    #[test]
    fn quantities_are_short() {
        assert_eq!(
            [0.0, 3.25, 152.4, 12_345.0, 2_500_000.0].map(quantity),
            ["0", "3.2", "152", "12.3k", "2.5M"]
        );
    }

    proptest! {
        #[test]
        fn no_text_is_wider_than_it_is_cut_to(text in any::<String>(), columns in 0_usize..40) {
            let cut = cut(&clean(&text), columns);
            prop_assert!(width(&cut) <= columns, "{cut:?}");
            prop_assert!(!cut.chars().any(char::is_control));
        }

        #[test]
        fn every_duration_fits_seven_columns_up_to_four_days(nanos in 0_u64..345_600_000_000_000) {
            prop_assert!(width(&duration(Nanos(nanos))) <= 7);
        }
    }
}
