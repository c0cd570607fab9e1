//! TLS: who gets it, how it is agreed on, and what a handshake comes to.

use std::io::Error;
use std::sync::Arc;

use auth::{Certificate, TlsFacts};
use config::SslNegotiation;
use io::{Buf, Driver, Ends, Sealed, Session};
use session::login::Encryption;
use tls::Mode;

use crate::cancel::Going;
use crate::client::State;
use crate::end::Why;
use crate::log::Level;
use crate::server::{self, Server};
use crate::worker::Worker;
use crate::world::World;

/// A client's handshake, while it is under way.
pub(crate) struct Handshake {
    /// The client did not ask first.
    pub(crate) direct: bool,
    /// By what it is made: a RELOAD may bring another certificate meanwhile.
    inward: Arc<tls::Inward>,
}

/// How a connection to a server begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Approach {
    Plain,
    /// Ask whether it speaks TLS.
    Ask,
    /// Begin the handshake.
    Direct,
}

/// What a server answers when it is asked whether it speaks TLS.
enum Answer {
    Yes,
    No,
    /// Something else. It came unencrypted, from whomever: it is neither shown nor acted upon.
    Else(&'static str),
}

impl Answer {
    fn read(bytes: &[u8]) -> Self {
        match bytes {
            b"S" => Self::Yes,
            b"N" => Self::No,
            [b'E', ..] => Self::Else("server answered the request for TLS with an error"),
            [b'S' | b'N', ..] => {
                Self::Else("server sent unencrypted bytes after its answer to the request for TLS")
            }
            _ => Self::Else("server did not understand the request for TLS"),
        }
    }
}

/// Clients.
impl<D: Driver, W: World> Worker<D, W> {
    /// What a client with these ends gets that asks for TLS. Unix sockets have no need of it.
    pub(crate) fn encryption_for(&self, ends: &Ends) -> Encryption {
        let inward = &self.site.tls.inward;
        match inward.mode {
            _ if ends.peer.is_unix() || inward.config.is_none() => Encryption::Denied,
            Mode::Disable => Encryption::Denied,
            Mode::Allow | Mode::Prefer => Encryption::Offered,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => Encryption::Required,
        }
    }

    /// A client is to get TLS. `beginning`: of its handshake, where it did not ask first.
    pub(crate) fn secure_client(&mut self, slot: u32, beginning: Option<Vec<u8>>) {
        let inward = self.site.tls.inward.clone();
        let client = &mut self.clients[slot as usize];
        let conn = client.conn;
        let (State::Login(entering), Some(config)) = (&mut client.state, inward.config.clone())
        else {
            // It was switched off a moment ago.
            return self.client_leaves(slot, Why::Told("TLS is not enabled any more".into()));
        };
        let direct = beginning.is_some();
        entering.handshake = Some(Handshake { direct, inward });
        self.driver.secure(conn, Session::Server(config));
        if let Some(beginning) = beginning {
            self.driver.unread(conn, beginning.into());
        }
    }

    /// Bytes of a client that is in its handshake: they were received before that began.
    pub(crate) fn client_was_early(&mut self, slot: u32, direct: bool, bytes: Buf) {
        if direct {
            let conn = self.clients[slot as usize].conn;
            return self.driver.unread(conn, bytes);
        }
        let why = "unencrypted bytes after a request for encryption";
        self.client_leaves(slot, Why::Told(why.into()));
    }

    pub(crate) fn client_secured(&mut self, slot: u32, sealed: Sealed) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        let State::Login(entering) = &mut client.state else { return };
        let Some(Handshake { direct, inward }) = entering.handshake.take() else { return };
        let rare = client.card.rare();
        rare.suite = Some(sealed.suite);
        rare.tls = Some(TlsFacts {
            certificate: sealed.peer.as_deref().and_then(Certificate::read),
            end_point: inward.end_point.clone(),
        });
        entering.login.secured();
        if direct && sealed.alpn.as_deref() != Some(tls::ALPN) {
            // Whoever does not name the protocol may have been led here from another one.
            let why = "direct TLS connection without ALPN";
            self.client_leaves(slot, Why::Text(why.into()));
        }
    }

    /// It gets to know by an alert, which is on its way.
    pub(crate) fn client_handshake_failed(&mut self, slot: u32, error: &Error) {
        self.log_client(slot, Level::Warning, format_args!("TLS handshake error: {error}"));
        self.client_leaves(slot, Why::Told("TLS handshake failed".into()));
    }
}

/// Servers.
impl<D: Driver, W: World> Worker<D, W> {
    /// How the connection to `server` begins.
    fn approach(&self, server: &Server) -> Approach {
        let tcp = server.address.as_ref().is_some_and(|address| !address.is_unix());
        let room = self.room(server.pool);
        let direct =
            room.is_some_and(|room| room.database.sslnegotiation == SslNegotiation::Direct);
        match (self.site.tls.outward.mode, direct) {
            (Mode::Disable, _) => Approach::Plain,
            _ if !tcp => Approach::Plain,
            (_, true) => Approach::Direct,
            (_, false) => Approach::Ask,
        }
    }

    /// A server answers: have TLS with it, where it is wanted.
    pub(crate) fn approach_server(&mut self, entry: u32) {
        match self.approach(&self.servers[entry as usize]) {
            Approach::Plain => self.introduce(entry),
            Approach::Ask => {
                self.servers[entry as usize].state = server::State::Asking;
                self.send_to_server(entry, &request());
            }
            Approach::Direct => self.secure_server(entry),
        }
    }

    fn secure_server(&mut self, entry: u32) {
        let config = self.site.tls.outward.config.clone();
        let server = &mut self.servers[entry as usize];
        let (Some(config), Some(conn)) = (config, server.conn) else {
            return self.login_fails(entry, "TLS was switched off meanwhile", None);
        };
        server.state = server::State::Securing;
        let name = tls::server_name(&server.route.host());
        self.driver.secure(conn, Session::Client(config, name));
    }

    /// A server answered whether it speaks TLS.
    pub(crate) fn server_answered(&mut self, entry: u32, bytes: &[u8]) {
        match Answer::read(bytes) {
            Answer::Yes => self.secure_server(entry),
            Answer::No if self.site.tls.outward.mode < Mode::Require => self.introduce(entry),
            Answer::No => self.server_not_secured(entry, "server refused SSL"),
            Answer::Else(what) => self.server_not_secured(entry, what),
        }
    }

    /// Bytes of a server that is in its handshake came before that began.
    pub(crate) fn server_was_early(&mut self, entry: u32) {
        let what = "server sent unencrypted bytes after its answer to the request for TLS";
        self.server_not_secured(entry, what);
    }

    pub(crate) fn server_not_secured(&mut self, entry: u32, what: &'static str) {
        self.log_server(entry, Level::Warning, format_args!("TLS handshake error: {what}"));
        self.login_fails(entry, what, None);
    }

    pub(crate) fn server_secured(&mut self, entry: u32, sealed: &Sealed) {
        let Some(server) = self.servers.get_mut(entry as usize) else { return };
        if !matches!(server.state, server::State::Securing) {
            return;
        }
        server.suite = Some(sealed.suite);
        server.end_point = sealed.peer.as_deref().and_then(auth::end_point);
        if self.approach(&self.servers[entry as usize]) == Approach::Direct
            && sealed.alpn.as_deref() != Some(tls::ALPN)
        {
            let what = "server did not agree on ALPN for a direct TLS connection";
            return self.server_not_secured(entry, what);
        }
        if self.site.config.settings.log_connections {
            let suite = sealed.suite;
            self.log_server(entry, Level::Log, format_args!("SSL established: {suite}"));
        }
        self.introduce(entry);
    }

    /// A server's handshake failed, or it hung up in it.
    pub(crate) fn server_handshake_failed(&mut self, entry: u32, error: Option<&Error>) {
        match error {
            Some(error) => {
                self.log_server(
                    entry,
                    Level::Warning,
                    format_args!("TLS handshake error: {error}"),
                );
            }
            None => self.log_server(
                entry,
                Level::Warning,
                format_args!("TLS handshake error: handshake failed: server closed the connection"),
            ),
        }
        self.login_fails(entry, "TLS handshake failed", None);
    }
}

/// Connections on which we cancel: as the server's own.
impl<D: Driver, W: World> Worker<D, W> {
    /// Have TLS on a cancel's connection where its server has it. Whether it is ready to send.
    pub(crate) fn approach_to_cancel(&mut self, slot: u32) -> bool {
        let Some(canceller) = self.cancellers.get_mut(slot as usize) else { return false };
        let conn = canceller.conn;
        match canceller.approach {
            Approach::Plain => return true,
            Approach::Ask => {
                canceller.state = Going::Asking;
                self.driver.write(conn, &request());
            }
            Approach::Direct => self.secure_canceller(slot),
        }
        false
    }

    /// How the cancel of what `server` does has to begin.
    pub(crate) fn approach_of_cancel(&self, server: &Server) -> Approach {
        match (server.suite, self.approach(server)) {
            (None, _) => Approach::Plain,
            // What was encrypted to the server is not said in the clear.
            (Some(_), Approach::Plain) => Approach::Ask,
            (Some(_), approach) => approach,
        }
    }

    fn secure_canceller(&mut self, slot: u32) {
        let config = self.site.tls.outward.config.clone();
        let Some(canceller) = self.cancellers.get_mut(slot as usize) else { return };
        let Some(config) = config else { return self.canceller_done(slot) };
        canceller.state = Going::Securing;
        let (conn, name) = (canceller.conn, tls::server_name(&canceller.host));
        self.driver.secure(conn, Session::Client(config, name));
    }

    pub(crate) fn canceller_heard(&mut self, slot: u32, bytes: &[u8]) {
        let Some(canceller) = self.cancellers.get(slot as usize) else { return };
        match (canceller.state, Answer::read(bytes)) {
            (Going::Asking, Answer::Yes) => self.secure_canceller(slot),
            (Going::Asking | Going::Securing, _) => self.canceller_done(slot),
            // A server answers a CancelRequest by hanging up, never with words.
            (Going::Connecting | Going::Sent | Going::Closing, _) => {}
        }
    }

    pub(crate) fn canceller_secured(&mut self, slot: u32, sealed: &Sealed) {
        let Some(canceller) = self.cancellers.get(slot as usize) else { return };
        match (canceller.state, canceller.approach) {
            (Going::Securing, Approach::Direct) if sealed.alpn.as_deref() != Some(tls::ALPN) => {
                self.canceller_done(slot);
            }
            (Going::Securing, _) => self.send_cancel(slot),
            _ => {}
        }
    }
}

/// An SSLRequest.
fn request() -> Vec<u8> {
    let mut out = Vec::with_capacity(8);
    wire::write::client::ssl_request(&mut out);
    out
}
