//! The same stories, told over every driver: what the worker relies on.

#![allow(clippy::unwrap_used)]

mod closing;
mod detaching;
mod flow;
mod listening;
mod talking;
mod tls;
mod torture;
mod waking;
mod world;
