//! Figures and their budgets, as a table.

use std::fmt::Write as _;

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// The figure, with its unit.
    pub value: String,
    /// What the design allows; empty where it says nothing.
    pub budget: &'static str,
}

/// A figure.
pub fn figure(what: impl Into<String>, value: impl Into<String>, budget: &'static str) -> Figure {
    Figure { what: what.into(), value: value.into(), budget }
}

/// A Markdown table.
pub fn table(figures: &[Figure]) -> String {
    let mut text = String::from("| what | figure | budget |\n| --- | --- | --- |\n");
    for Figure { what, value, budget } in figures {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {what} | {value} | {budget} |");
    }
    text
}

/// The middle value; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    sorted.get(sorted.len() / 2 - 1).map(|lower| f64::midpoint(*lower, upper))
}

/// A median with the range it came from: `0.998 (0.991 to 1.004, 5 runs)`.
pub fn spread(values: &[f64], digits: usize) -> String {
    let Some(middle) = median(values) else { return "not measured".to_owned() };
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{middle:.digits$} ({low:.digits$} to {high:.digits$}, {} runs)", values.len())
}

/// A mean with twice its standard error, what it would be again nineteen times of twenty: `0.998 +- 0.004 (16 runs)`.
pub fn estimate(values: &[f64], digits: usize) -> String {
    if values.len() < 2 {
        return spread(values, digits);
    }
    #[allow(clippy::cast_precision_loss, reason = "a few dozen runs")]
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let error = 2.0 * (variance / count).sqrt();
    format!("{mean:.digits$} +- {error:.digits$} ({} runs)", values.len())
}

/// A whole number as a real one: figures have no need of more than 53 bits.
#[allow(clippy::cast_precision_loss, reason = "figures are printed with a few digits")]
pub fn real(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_spread_shows_the_range_and_how_many() {
        assert_eq!(spread(&[1.0, 0.5, 0.75], 2), "0.75 (0.50 to 1.00, 3 runs)");
        assert_eq!(spread(&[], 2), "not measured");
    }

    #[test]
    fn an_estimate_shows_how_sure_it_is() {
        assert_eq!(estimate(&[1.0, 3.0, 1.0, 3.0], 2), "2.00 +- 1.15 (4 runs)");
        assert_eq!(estimate(&[1.0], 1), "1.0 (1.0 to 1.0, 1 runs)");
    }

    #[test]
    fn a_table_has_a_line_for_each_figure() {
        let text = table(&[figure("a", "1 us", "<= 5 us"), figure("b", "2", "")]);
        assert_eq!(text.lines().count(), 4);
        assert!(text.ends_with("| b | 2 |  |\n"));
    }
}
