//! A portal: a request that was bound, and how much of its rows has been sent.

use wire::tag::server as tag;
use wire::write;

use crate::cell::Formats;
use crate::console::Answer;
use crate::grammar::Request;

#[derive(Debug)]
pub(crate) struct Portal {
    pub(crate) request: Request,
    pub(crate) formats: Formats,
    pub(crate) progress: Progress,
}

/// How far it has come.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Not executed yet.
    Bound,
    /// Executed: its rows, as whole messages, and how many bytes of them were sent.
    Rows { rows: Vec<u8>, sent: usize },
    /// Executed, and it can be so once only.
    Done,
}

impl Portal {
    pub(crate) fn new(request: Request, formats: Formats) -> Self {
        Self { request, formats, progress: Progress::Bound }
    }

    /// It was carried out, with this answer.
    pub(crate) fn fill(&mut self, answer: &Answer<'_>) {
        self.progress = if self.request.columns().is_empty() {
            Progress::Done
        } else {
            let mut rows = Vec::new();
            self.request.rows(answer, &self.formats, &mut rows);
            Progress::Rows { rows, sent: 0 }
        };
    }

    /// Sends at most so many rows (zero: all), and how it ends. As in PostgreSQL, a limit that is
    /// just reached suspends: it is not known whether there would have been more.
    pub(crate) fn send(&mut self, rows_max: u32, out: &mut Vec<u8>) {
        let Progress::Rows { rows, sent } = &mut self.progress else {
            return self.request.complete(out);
        };
        let rest = rows.get(*sent..).unwrap_or_default();
        let (end, count) = end_of(rest, if rows_max == 0 { u32::MAX } else { rows_max });
        out.extend_from_slice(rest.get(..end).unwrap_or_default());
        *sent += end;
        if count == rows_max && rows_max > 0 {
            write::message(out, tag::PORTAL_SUSPENDED, |_| {});
        } else {
            self.progress = Progress::Rows { rows: Vec::new(), sent: 0 };
            self.request.complete(out);
        }
    }
}

/// Where the first `rows_max` messages end, and how many there are of them.
fn end_of(rows: &[u8], rows_max: u32) -> (usize, u32) {
    let (mut end, mut count) = (0, 0);
    while count < rows_max
        && let Some((_, rest)) = rows.get(end..).and_then(|rest| rest.split_first())
        && let Some(len) = rest.first_chunk().map(|len| u32::from_be_bytes(*len))
        && let Some(next) = usize::try_from(len).ok().and_then(|len| end.checked_add(1 + len))
        && next <= rows.len()
    {
        (end, count) = (next, count + 1);
    }
    (end, count)
}
