//! What clients say, one call for each message.

#![allow(dead_code, reason = "each test crate uses its own part")]

use wire::write::client as ask;
use wire::{Namespace, tag};

/// A client's stream in the making.
#[derive(Default)]
pub(crate) struct Script(pub(crate) Vec<u8>);

impl Script {
    pub(crate) fn message(mut self, tag: u8, body: &[u8]) -> Self {
        wire::write::message(&mut self.0, tag, |out| out.extend_from_slice(body));
        self
    }

    pub(crate) fn query(mut self, text: &str) -> Self {
        ask::query(&mut self.0, text.as_bytes());
        self
    }

    pub(crate) fn parse(mut self, name: &str, text: &str) -> Self {
        ask::parse(&mut self.0, name.as_bytes(), text.as_bytes(), b"");
        self
    }

    pub(crate) fn bind(self, portal: &str, statement: &str) -> Self {
        let body = [portal.as_bytes(), b"\0", statement.as_bytes(), b"\0\0\0\0\0\0\0"].concat();
        self.message(tag::client::BIND, &body)
    }

    pub(crate) fn execute(self, portal: &str, max: u8) -> Self {
        let body = [portal.as_bytes(), &[0, 0, 0, 0, max]].concat();
        self.message(tag::client::EXECUTE, &body)
    }

    pub(crate) fn describe(mut self, kind: Namespace, name: &str) -> Self {
        ask::describe(&mut self.0, kind, name.as_bytes());
        self
    }

    pub(crate) fn close(mut self, kind: Namespace, name: &str) -> Self {
        ask::close(&mut self.0, kind, name.as_bytes());
        self
    }

    pub(crate) fn data(self, row: &str) -> Self {
        self.message(tag::client::COPY_DATA, row.as_bytes())
    }

    pub(crate) fn copy_done(self) -> Self {
        self.message(tag::client::COPY_DONE, b"")
    }

    pub(crate) fn sync(mut self) -> Self {
        ask::sync(&mut self.0);
        self
    }

    pub(crate) fn flush(self) -> Self {
        self.message(tag::client::FLUSH, b"")
    }

    pub(crate) fn run(self, name: &str) -> Self {
        self.bind("", name).execute("", 0)
    }
}
