//! An outlet of the log that may block: a pipe, a terminal, the system's logger. A thread of its own
//! writes to it, so that nobody who has something to say ever waits for whoever reads.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use worker::Level;

use crate::lines::{Clock, Lines};

/// Most that waits to be written. What is said beyond it is lost, and counted.
const WAITING_MAX: usize = 1 << 20;

/// Takes lines, and may take its time.
pub(crate) trait Write: Send + 'static {
    fn write(&mut self, lines: &Lines) -> io::Result<()>;
}

/// The end where lines are put in.
pub(crate) struct Outlet(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Item>,
    bytes: usize,
    is_writing: bool,
    is_closed: bool,
}

enum Item {
    Lines(Arc<Lines>),
    /// So many lines found the queue full here.
    Lost(u64),
}

impl Outlet {
    /// `name` is what the line about lost lines calls it.
    pub(crate) fn open(name: &'static str, write: impl Write) -> io::Result<Self> {
        let shared = Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new() });
        let theirs = shared.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || theirs.serve(name, write))?;
        Ok(Self(shared))
    }

    /// Never waits.
    pub(crate) fn put(&self, lines: &Arc<Lines>) {
        let mut queue = self.0.lock();
        if queue.bytes + lines.bytes() <= WAITING_MAX {
            queue.bytes += lines.bytes();
            queue.waiting.push_back(Item::Lines(lines.clone()));
        } else if let Some(Item::Lost(lost)) = queue.waiting.back_mut() {
            *lost += lines.count();
        } else {
            queue.waiting.push_back(Item::Lost(lines.count()));
        }
        self.0.changed.notify_all();
    }

    /// Wait until everything is written, but not for longer than `most`.
    pub(crate) fn drain(&self, most: Duration) {
        let until = Instant::now() + most;
        let mut queue = self.0.lock();
        while !queue.waiting.is_empty() || queue.is_writing {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return };
            let waited = self.0.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's life: it ends when the outlet is closed and all is written.
    fn serve(&self, name: &str, mut write: impl Write) {
        let mut clock = Clock::new();
        // Lines that could not be written; it is said as soon as something can.
        let mut lost = 0;
        while let Some(item) = self.next() {
            match item {
                Item::Lost(count) => lost += count,
                Item::Lines(_) => {}
            }
            if lost > 0 {
                let mut note = Lines::default();
                let text = format_args!("{lost} log lines were lost: {name} did not take them");
                clock.line(&mut note, Level::Warning, text);
                lost = if write.write(&note).is_ok() { 0 } else { lost };
            }
            if let Item::Lines(lines) = item
                && write.write(&lines).is_err()
            {
                lost += lines.count();
            }
            self.lock().is_writing = false;
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<Item> {
        let mut queue = self.lock();
        loop {
            if let Some(item) = queue.waiting.pop_front() {
                if let Item::Lines(lines) = &item {
                    queue.bytes -= lines.bytes();
                }
                queue.is_writing = true;
                return Some(item);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A stream: standard error, or a log file that is none (a pipe, a terminal).
pub(crate) struct Stream<F> {
    pub(crate) to: F,
    pub(crate) is_journal: bool,
}

impl<F: AsFd + Send + 'static> Write for Stream<F> {
    fn write(&mut self, lines: &Lines) -> io::Result<()> {
        if self.is_journal {
            write_all(&self.to, lines.journal().as_bytes())
        } else {
            write_all(&self.to, lines.full().as_bytes())
        }
    }
}

/// Also where somebody made the stream non-blocking: it is shared with whoever started us.
fn write_all(to: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&to, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                poll(&mut [PollFd::new(&to, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Takes a line when the test lets it.
    struct Slow {
        let_go: Receiver<()>,
        seen: Sender<String>,
    }

    impl Write for Slow {
        fn write(&mut self, lines: &Lines) -> io::Result<()> {
            let _ = self.let_go.recv();
            let _ = self.seen.send(lines.full().to_owned());
            Ok(())
        }
    }

    fn line(text: &str) -> Arc<Lines> {
        let mut lines = Lines::default();
        Clock::new().line(&mut lines, Level::Log, format_args!("{text}"));
        Arc::new(lines)
    }

    #[test]
    fn who_does_not_read_loses_lines_and_hears_how_many() {
        let (go, let_go) = channel();
        let (seen, sees) = channel();
        let outlet = Outlet::open("it", Slow { let_go, seen }).expect("a thread");
        let long = line(&"x".repeat(100_000));
        outlet.put(&long);
        while !outlet.0.lock().waiting.is_empty() {
            thread::yield_now();
        }
        // One is with the writer, ten fit.
        for _ in 0..29 {
            outlet.put(&long);
        }
        drop(go);
        outlet.drain(Duration::from_secs(20));
        outlet.put(&line("later"));
        drop(outlet);
        let texts: Vec<String> = sees.iter().collect();
        let written = texts.iter().filter(|text| text.contains("xxx")).count();
        assert_eq!(written, 11);
        let note = "WARNING 19 log lines were lost: it did not take them\n";
        assert!(texts[written].ends_with(note), "{}", texts[written]);
        assert!(texts[written + 1].ends_with("LOG later\n"));
    }
}
