//! The log: a file, standard error and the system's logger, a line at a time.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::Settings;
use worker::{Level, Log};

use crate::lines::{Clock, Lines};
use crate::outlet::{Outlet, Stream};
use crate::syslog::{Label, Syslog};

/// How long the end of the process waits for whoever reads its log.
const DRAIN: Duration = Duration::from_secs(2);

/// Where all threads' lines go.
pub(crate) struct Sink {
    file: Mutex<Place>,
    outlets: Mutex<Outlets>,
    verbose: AtomicU32,
}

/// The outlets that may block.
#[derive(Default)]
struct Outlets {
    stderr: Option<Outlet>,
    syslog: Option<(Label, Outlet)>,
}

/// What `logfile` names.
enum Place {
    None,
    /// Written by whoever has something to say, so that a line is there before anybody hears of what it tells.
    File(LogFile),
    /// A pipe, a terminal: `/dev/stdout` in a container.
    Stream(Outlet),
}

impl Sink {
    pub(crate) fn new(stderr: bool) -> Arc<Self> {
        let mut outlets = Outlets::default();
        if stderr {
            let stream = Stream { to: io::stderr(), is_journal: is_journal() };
            outlets.stderr = Outlet::open("standard error", stream).ok();
        }
        Arc::new(Self {
            file: Mutex::new(Place::None),
            outlets: Mutex::new(outlets),
            verbose: AtomicU32::new(0),
        })
    }

    /// Do as the settings say: also opens the log file anew, after somebody moved it away. What is
    /// wrong is told.
    pub(crate) fn set(&self, settings: &Settings, told: &mut Vec<String>) -> Result<(), String> {
        let label = Label::of(settings, told);
        let mut outlets = lock(&self.outlets);
        if label.as_ref() != outlets.syslog.as_ref().map(|(label, _)| label) {
            outlets.syslog = label.and_then(|label| {
                let outlet = Outlet::open("syslog", Syslog::new(label.clone())).ok()?;
                Some((label, outlet))
            });
        }
        drop(outlets);
        let path = &settings.logfile;
        self.reopen(path).map_err(|error| format!("cannot open log file '{path}': {error}"))
    }

    /// Empty: none.
    fn reopen(&self, path: &str) -> io::Result<()> {
        // Held from here on: no line goes to the old file once the new one is there.
        let mut place = lock(&self.file);
        if path.is_empty() {
            *place = Place::None;
            return Ok(());
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let kind = file.metadata()?.file_type();
        if kind.is_fifo() || kind.is_socket() || rustix::termios::isatty(&file) {
            let stream = Stream { to: file, is_journal: false };
            *place = Place::Stream(Outlet::open("logfile", stream)?);
        } else if let Place::File(old) = &mut *place {
            // What the old one lost is told in the new one.
            old.file = file;
        } else {
            *place = Place::File(LogFile { file, lost: 0, is_torn: false, clock: Clock::new() });
        }
        Ok(())
    }

    pub(crate) fn verbose(&self, level: u32) {
        self.verbose.store(level, Ordering::Relaxed);
    }

    /// From here on nobody reads standard error.
    pub(crate) fn leave_stderr(&self) {
        let stderr = lock(&self.outlets).stderr.take();
        if let Some(stderr) = stderr {
            stderr.drain(DRAIN);
        }
    }

    /// The process ends: wait until what was said is written.
    pub(crate) fn drain(&self) {
        let outlets = lock(&self.outlets);
        let syslog = outlets.syslog.as_ref().map(|(_, outlet)| outlet);
        for outlet in outlets.stderr.iter().chain(syslog) {
            outlet.drain(DRAIN);
        }
        if let Place::Stream(outlet) = &*lock(&self.file) {
            outlet.drain(DRAIN);
        }
    }

    fn wants(&self, level: Level) -> bool {
        match level {
            Level::Debug => self.verbose.load(Ordering::Relaxed) >= 1,
            Level::Noise => self.verbose.load(Ordering::Relaxed) >= 2,
            _ => true,
        }
    }

    fn write(&self, lines: &Lines) {
        // One copy for all that write later, and none where nobody does.
        let mut shared = None;
        let mut put = |outlet: &Outlet| {
            outlet.put(shared.get_or_insert_with(|| Arc::new(lines.clone())));
        };
        match &mut *lock(&self.file) {
            Place::None => {}
            Place::File(file) => file.write(lines),
            Place::Stream(outlet) => put(outlet),
        }
        let outlets = lock(&self.outlets);
        if let Some(stderr) = &outlets.stderr {
            put(stderr);
        }
        if let Some((_, syslog)) = &outlets.syslog {
            put(syslog);
        }
    }
}

/// What it guards is whole, whoever panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether standard error ends in the journal: systemd says which stream does, by its device and inode.
fn is_journal() -> bool {
    let Some(named) = std::env::var_os("JOURNAL_STREAM") else { return false };
    let Ok(stat) = rustix::fs::fstat(io::stderr().as_fd()) else { return false };
    named.to_str() == Some(&format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// A file on a disk, which may be full.
struct LogFile {
    file: File,
    /// Lines that could not be written since the last one that could.
    lost: u64,
    /// A piece of a line is the last thing in the file.
    is_torn: bool,
    clock: Clock,
}

impl LogFile {
    fn write(&mut self, lines: &Lines) {
        if self.lost == 0 {
            return self.append(lines, "");
        }
        let mut note = Lines::default();
        let text = format_args!("{} log lines were lost: the log file took no more", self.lost);
        self.clock.line(&mut note, Level::Warning, text);
        let mut before = String::new();
        if self.is_torn {
            before.push('\n');
        }
        let _ = before.write_str(note.full());
        self.append(lines, &before);
    }

    /// All of it in one write as a rule, so that two processes may share a file.
    fn append(&mut self, lines: &Lines, before: &str) {
        let joined;
        let bytes = if before.is_empty() {
            lines.full().as_bytes()
        } else {
            joined = [before, lines.full()].concat();
            joined.as_bytes()
        };
        let mut written = 0;
        while written < bytes.len() {
            match self.file.write(&bytes[written..]) {
                Ok(0) => break,
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if written >= before.len() {
            self.lost = 0;
        }
        self.lost += lines.count() - lines.whole_in(written.saturating_sub(before.len()));
        if written > 0 {
            self.is_torn = bytes[written - 1] != b'\n';
        }
    }
}

/// One thread's pen: its lines are kept until the turn is over, and go out in one write.
pub(crate) struct Pen {
    sink: Arc<Sink>,
    lines: Lines,
    clock: Clock,
}

impl Pen {
    pub(crate) fn new(sink: Arc<Sink>) -> Self {
        Self { sink, lines: Lines::default(), clock: Clock::new() }
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
        if self.sink.wants(level) {
            self.clock.line(&mut self.lines, level, text);
        }
    }

    fn flush(&mut self) {
        if !self.lines.is_empty() {
            self.sink.write(&self.lines);
            self.lines.clear();
        }
    }
}
