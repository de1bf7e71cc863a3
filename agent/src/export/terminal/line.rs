//! One line per finished request, in columns.

use enginetap_core::time::{Nanos, WallTime};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::row::Row;
use super::style::{Paint, Tone};
use super::text::{clean, cut, duration, pad, width};

/// A column. Those of a higher rank go first where the terminal is too narrow for all.
struct Column {
    title: &'static str,
    width: usize,
    right: bool,
    rank: u8,
    cell: fn(&Row, &TimeZone) -> String,
}

/// Names the columns' order. The model's width is what the others leave.
static COLUMNS: &[Column] = &[
    Column { title: "START", width: 12, right: false, rank: 5, cell: |row, zone| clock(row.start, zone) },
    Column { title: "OPERATION", width: 10, right: false, rank: 6, cell: |row, _| operation(row) },
    Column {
        title: MODEL,
        width: MODEL_MIN,
        right: false,
        rank: 0,
        cell: |row, _| optional(row.model.as_deref()),
    },
    Column { title: END, width: 10, right: false, rank: 0, cell: |row, _| row.outcome.text.clone() },
    Column { title: "IN", width: 6, right: true, rank: 0, cell: |row, _| count(row.input_tokens) },
    Column { title: "OUT", width: 6, right: true, rank: 0, cell: |row, _| count(row.output_tokens) },
    Column { title: "QUEUE", width: 7, right: true, rank: 1, cell: |row, _| time(row.queue) },
    Column { title: "PREFILL", width: 7, right: true, rank: 3, cell: |row, _| time(row.prefill) },
    Column { title: "DECODE", width: 7, right: true, rank: 4, cell: |row, _| time(row.decode) },
    Column { title: "TTFT", width: 7, right: true, rank: 0, cell: |row, _| time(row.ttft) },
    Column { title: "TOTAL", width: 7, right: true, rank: 0, cell: |row, _| time(Some(row.e2e)) },
    Column { title: "TPOT", width: 7, right: true, rank: 2, cell: |row, _| time(row.tpot) },
];

const MODEL: &str = "MODEL";
const MODEL_MIN: usize = 8;
const MODEL_MAX: usize = 28;
const END: &str = "END";
const NOTES: &str = "NOTES";
/// Notes get this much before the model gets more.
const NOTES_WISH: usize = 24;

/// Which columns there are, and how wide.
pub(super) struct Layout {
    columns: Vec<(&'static Column, usize)>,
    /// Columns left for the notes; `None`: as many as they need.
    notes: Option<usize>,
}

impl Layout {
    /// For a terminal of that many columns; `None`: not a terminal, everything is shown.
    pub(super) fn new(terminal: Option<usize>) -> Self {
        let mut columns: Vec<_> = COLUMNS.iter().map(|column| (column, column.width)).collect();
        let Some(limit) = terminal else {
            widen(&mut columns, MODEL_MAX);
            return Self { columns, notes: None };
        };
        while used(&columns) > limit {
            let Some(most) = columns.iter().map(|(column, _)| column.rank).max().filter(|rank| *rank > 0)
            else {
                break;
            };
            columns.retain(|(column, _)| column.rank < most);
        }
        let spare = limit.saturating_sub(used(&columns) + NOTES_WISH);
        widen(&mut columns, (MODEL_MIN + spare).min(MODEL_MAX));
        let notes = limit.saturating_sub(used(&columns) + 1);
        Self { columns, notes: Some(notes) }
    }

    pub(super) fn header(&self, paint: Paint) -> String {
        let titles = self.columns.iter().map(|(column, columns)| pad(column.title, *columns, column.right));
        let mut line = titles.collect::<Vec<_>>().join(" ");
        if self.notes.is_none_or(|room| room >= NOTES.len()) {
            line.push(' ');
            line.push_str(NOTES);
        }
        paint.paint(Tone::Dim, line.trim_end())
    }

    pub(super) fn line(&self, row: &Row, zone: &TimeZone, paint: Paint) -> String {
        let mut line = String::new();
        for (column, columns) in &self.columns {
            let cell = clean(&(column.cell)(row, zone));
            // Off a terminal nothing is cut: the line may be read by a program.
            let cell = if self.notes.is_some() { cut(&cell, *columns) } else { cell };
            let tone = if column.title == END { row.outcome.tone } else { Tone::Plain };
            let blanks = columns.saturating_sub(width(&cell));
            let painted = paint.paint(tone, &cell);
            let (before, after) = if column.right { (blanks, 0) } else { (0, blanks) };
            line.extend([&" ".repeat(before), painted.as_str(), &" ".repeat(after), " "]);
        }
        let notes = clean(&row.notes().join(" "));
        let notes = self.notes.map_or_else(|| notes.clone(), |room| cut(&notes, room));
        line.push_str(&paint.paint(Tone::Notice, &notes));
        line.truncate(line.trim_end().len());
        line
    }
}

fn used(columns: &[(&Column, usize)]) -> usize {
    columns.iter().map(|(_, columns)| columns + 1).sum::<usize>().saturating_sub(1)
}

fn widen(columns: &mut [(&Column, usize)], model: usize) {
    columns.iter_mut().filter(|(column, _)| column.title == MODEL).for_each(|(_, columns)| *columns = model);
}

fn optional(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

fn operation(row: &Row) -> String {
    // The contract's name is longer than the column.
    if row.operation == "text_completion" { "completion".to_owned() } else { row.operation.clone() }
}

fn count(number: Option<i64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn time(length: Option<Nanos>) -> String {
    length.map_or_else(|| "-".to_owned(), duration)
}

/// A moment as a point of Unix time.
pub(super) fn timestamp(WallTime(nanos): WallTime) -> Timestamp {
    // Every u64 of nanoseconds lies within what a timestamp can hold.
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or(Timestamp::MAX)
}

/// The time of day.
pub(super) fn clock(at: WallTime, zone: &TimeZone) -> String {
    timestamp(at).to_zoned_datetime(zone.clone()).strftime("%H:%M:%S%.3f").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample;

    fn shown(terminal: Option<usize>) -> String {
        let layout = Layout::new(terminal);
        let rows = [sample::trace(), sample::refused()].map(|trace| Row::of(&trace).unwrap());
        let lines = rows.iter().map(|row| layout.line(row, &TimeZone::UTC, Paint(false)));
        [layout.header(Paint(false))].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn off_a_terminal_everything_is_shown() {
        let wanted = "\
START        OPERATION  MODEL                        END            IN    OUT   QUEUE PREFILL  DECODE    TTFT   TOTAL    TPOT NOTES
17:00:00.000 chat       tiny/llama                   stop           20     11  1.25ms  48.5ms   757ms  52.0ms   812ms  75.7ms preempted×2 cached 75%
17:00:00.000 completion m                            HTTP 400        -      -       -       -       -       -  3.00ms       - partial lost:gap_bytes";
        assert_eq!(shown(None), wanted);
    }

    #[test]
    fn a_narrow_terminal_gets_the_columns_that_matter() {
        let wanted = "\
MODEL    END            IN    OUT   QUEUE PREFILL    TTFT   TOTAL    TPOT NOTES
tiny/ll… stop           20     11  1.25ms  48.5ms  52.0ms   812ms  75.7ms preem…
m        HTTP 400        -      -       -       -       -  3.00ms       - parti…";
        assert_eq!(shown(Some(80)), wanted);
    }

    #[test]
    fn no_line_is_wider_than_its_terminal() {
        for columns in 60..200 {
            for line in shown(Some(columns)).lines() {
                assert!(width(line) <= columns, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn colour_marks_the_ending_and_the_notes_only() {
        let row = Row::of(&sample::refused()).unwrap();
        let line = Layout::new(None).line(&row, &TimeZone::UTC, Paint(true));
        assert!(line.contains("\x1b[31mHTTP 400\x1b[0m   "), "{line:?}");
        assert!(line.ends_with("\x1b[33mpartial lost:gap_bytes\x1b[0m"), "{line:?}");
    }

    #[test]
    fn a_models_name_cannot_act_on_the_terminal() {
        let mut trace = sample::trace();
        trace.spans[0].set(enginetap_core::model::registry::attr::REQUEST_MODEL, "\x1b]0;pwned\x07");
        let line = Layout::new(None).line(&Row::of(&trace).unwrap(), &TimeZone::UTC, Paint(false));
        assert!(!line.contains(['\x1b', '\x07']), "{line:?}");
    }
}
