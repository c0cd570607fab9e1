//! The log: standard error and a file, a line at a time.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Zoned;
use worker::{Level, Log};

/// Where all threads' lines go.
pub(crate) struct Sink {
    file: Mutex<Option<File>>,
    stderr: AtomicBool,
    verbose: AtomicU32,
    /// Lines that could not be written: the disk was full, as a rule.
    lost: AtomicU64,
}

impl Sink {
    pub(crate) fn new(stderr: bool) -> Arc<Self> {
        Arc::new(Self {
            file: Mutex::new(None),
            stderr: AtomicBool::new(stderr),
            verbose: AtomicU32::new(0),
            lost: AtomicU64::new(0),
        })
    }

    /// Open the log file, or open it anew after somebody moved it away. Empty: none.
    pub(crate) fn reopen(&self, path: &str) -> io::Result<()> {
        // Held from here on: no line goes to the old file once the new one is there.
        let mut place = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = if path.is_empty() {
            None
        } else {
            Some(OpenOptions::new().create(true).append(true).open(path)?)
        };
        *place = file;
        Ok(())
    }

    pub(crate) fn verbose(&self, level: u32) {
        self.verbose.store(level, Ordering::Relaxed);
    }

    fn wants(&self, level: Level) -> bool {
        match level {
            Level::Debug => self.verbose.load(Ordering::Relaxed) >= 1,
            Level::Noise => self.verbose.load(Ordering::Relaxed) >= 2,
            _ => true,
        }
    }

    fn write(&self, lines: &str) {
        let mut written = true;
        if let Some(file) = &mut *self.file.lock().unwrap_or_else(PoisonError::into_inner) {
            written = file.write_all(lines.as_bytes()).is_ok();
        }
        if self.stderr.load(Ordering::Relaxed) {
            // Nobody may be reading it any more; then there is nobody to tell.
            let _ = io::stderr().write_all(lines.as_bytes());
        }
        if !written {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One thread's pen: its lines are kept until the turn is over, and go out in one write.
pub(crate) struct Pen {
    sink: Arc<Sink>,
    lines: String,
    /// The second whose stamp is `stamp`, in Unix time.
    second: i64,
    stamp: String,
    zone: String,
    pid: u32,
}

impl Pen {
    pub(crate) fn new(sink: Arc<Sink>) -> Self {
        Self {
            sink,
            lines: String::new(),
            second: i64::MIN,
            stamp: String::new(),
            zone: String::new(),
            pid: std::process::id(),
        }
    }

    /// Write one line at once.
    pub(crate) fn say(&mut self, level: Level, text: fmt::Arguments<'_>) {
        self.line(level, text);
        self.flush();
    }
}

impl Log for Pen {
    fn wants(&self, level: Level) -> bool {
        self.sink.wants(level)
    }

    fn line(&mut self, level: Level, text: fmt::Arguments<'_>) {
        if !self.sink.wants(level) {
            return;
        }
        let now = Zoned::now();
        let second = now.timestamp().as_second();
        if second != self.second {
            self.second = second;
            self.stamp = now.strftime("%Y-%m-%d %H:%M:%S").to_string();
            self.zone = now.strftime("%Z").to_string();
        }
        let millis = now.timestamp().subsec_millisecond();
        let (stamp, zone, pid, word) = (&self.stamp, &self.zone, self.pid, level.word());
        let start = self.lines.len();
        // Writing to a String does not fail.
        let _ = write!(self.lines, "{stamp}.{millis:03} {zone} [{pid}] {word} {text}");
        // Names and texts come from peers: one that holds a line end must not make up a line.
        if self.lines[start..].contains(['\n', '\r']) {
            let line = self.lines[start..].replace(['\n', '\r'], " ");
            self.lines.truncate(start);
            self.lines.push_str(&line);
        }
        self.lines.push('\n');
    }

    fn flush(&mut self) {
        if !self.lines.is_empty() {
            self.sink.write(&self.lines);
            self.lines.clear();
        }
    }
}
