//! Lines of the log, and the forms in which they are written.

use std::fmt::{self, Write as _};

use jiff::Zoned;
use worker::Level;

/// Some lines, each `YYYY-MM-DD HH:MM:SS.mmm TZ [pid] LEVEL text`, with its end.
#[derive(Clone, Default)]
pub(crate) struct Lines {
    text: String,
    marks: Vec<Mark>,
}

/// Where a line's parts begin: the word of its level, and what it says.
#[derive(Clone, Copy)]
struct Mark {
    level: Level,
    word: usize,
    said: usize,
    end: usize,
}

impl Lines {
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.marks.clear();
    }

    pub(crate) fn count(&self) -> u64 {
        self.marks.len() as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// As they stand in a file.
    pub(crate) fn full(&self) -> &str {
        &self.text
    }

    /// How many of them are in the first `written` bytes, whole.
    pub(crate) fn whole_in(&self, written: usize) -> u64 {
        self.marks.iter().take_while(|mark| mark.end <= written).count() as u64
    }

    /// For the journal, which has the time and the process already: `<6>LOG text`.
    pub(crate) fn journal(&self) -> String {
        let mut text = String::with_capacity(self.text.len());
        for mark in &self.marks {
            // Writing to a String does not fail.
            let _ = write!(text, "<{}>{}", severity(mark.level), &self.text[mark.word..mark.end]);
        }
        text
    }

    /// For syslog: how grave each is, and what it says.
    pub(crate) fn said(&self) -> impl Iterator<Item = (u8, &str)> {
        self.marks.iter().map(|mark| (severity(mark.level), &self.text[mark.said..mark.end - 1]))
    }
}

/// As syslog and the journal number them.
fn severity(level: Level) -> u8 {
    match level {
        Level::Fatal => 2,
        Level::Error => 3,
        Level::Warning => 4,
        Level::Log => 6,
        Level::Debug | Level::Noise => 7,
    }
}

/// Puts the time in front of lines.
pub(crate) struct Clock {
    /// The second whose stamp is `stamp`, in Unix time.
    second: i64,
    stamp: String,
    zone: String,
    pid: u32,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let pid = std::process::id();
        Self { second: i64::MIN, stamp: String::new(), zone: String::new(), pid }
    }

    /// Add a line that is said now.
    pub(crate) fn line(&mut self, lines: &mut Lines, level: Level, text: fmt::Arguments<'_>) {
        let now = Zoned::now();
        let second = now.timestamp().as_second();
        if second != self.second {
            self.second = second;
            self.stamp = now.strftime("%Y-%m-%d %H:%M:%S").to_string();
            self.zone = now.strftime("%Z").to_string();
        }
        let millis = now.timestamp().subsec_millisecond();
        let (stamp, zone, pid) = (&self.stamp, &self.zone, self.pid);
        // Writing to a String does not fail.
        let _ = write!(lines.text, "{stamp}.{millis:03} {zone} [{pid}] ");
        let word = lines.text.len();
        let _ = write!(lines.text, "{} ", level.word());
        let said = lines.text.len();
        let _ = write!(lines.text, "{text}");
        // Names and texts come from peers: one that holds a line end must not make up a line.
        if lines.text[said..].contains(['\n', '\r']) {
            let line = lines.text[said..].replace(['\n', '\r'], " ");
            lines.text.truncate(said);
            lines.text.push_str(&line);
        }
        lines.text.push('\n');
        lines.marks.push(Mark { level, word, said, end: lines.text.len() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Lines {
        let mut lines = Lines::default();
        let mut clock = Clock::new();
        clock.line(&mut lines, Level::Log, format_args!("hello\n<0>FATAL made up"));
        clock.line(&mut lines, Level::Error, format_args!("oh"));
        lines
    }

    #[test]
    fn a_line_end_in_a_name_makes_no_line() {
        let lines = two();
        assert_eq!(lines.full().lines().count(), 2);
        assert!(lines.full().contains("] LOG hello <0>FATAL made up\n"));
        assert_eq!(lines.journal(), "<6>LOG hello <0>FATAL made up\n<3>ERROR oh\n");
        let said: Vec<_> = lines.said().collect();
        assert_eq!(said, [(6, "hello <0>FATAL made up"), (3, "oh")]);
    }

    #[test]
    fn whole_lines_are_counted() {
        let lines = two();
        let first = lines.full().find('\n').expect("two lines") + 1;
        assert_eq!(lines.whole_in(first - 1), 0);
        assert_eq!(lines.whole_in(first), 1);
        assert_eq!(lines.whole_in(lines.bytes()), 2);
    }
}
