//! The admins: what they order in the midst of it all.

use std::cell::RefCell;
use std::rc::Rc;

use auth::ServerAuth;
use wire::tag::server;
use wire::{ErrorFields, write};

use crate::bytes::Bytes;
use crate::dice::Dice;
use crate::login;
use crate::net::{End, LinkId, Net};
use crate::trace;
use crate::weather::Weather;

const VIEWS: [&str; 20] = [
    "active_sockets",
    "clients",
    "config",
    "databases",
    "dns_hosts",
    "dns_zones",
    "fds",
    "help",
    "lists",
    "mem",
    "peers",
    "pools",
    "servers",
    "sockets",
    "state",
    "stats",
    "stats_averages",
    "totals",
    "users",
    "version",
];

/// One admin's connection.
pub(crate) struct Admin {
    link: LinkId,
    net: Rc<RefCell<Net>>,
    dice: Dice,
    auth: Option<Box<ServerAuth>>,
    outbox: Bytes,
    inbox: Bytes,
    is_in: bool,
    pub(crate) is_gone: bool,
    /// The command that is under way.
    asked: Option<String>,
    /// To be said first.
    script: Vec<String>,
    /// Cells in each row of the answer under way.
    columns: Option<u16>,
    left: usize,
    /// The ids of clients, from SHOW CLIENTS.
    ids: Vec<String>,
}

impl Admin {
    pub(crate) fn new(link: LinkId, net: Rc<RefCell<Net>>, mut dice: Dice) -> Self {
        let mut outbox = Bytes::default();
        let names = [(&b"user"[..], &b"admin"[..]), (b"database", b"pgbouncer")];
        write::client::startup(outbox.end(), 0, names);
        let left = dice.between(1, 12);
        Self {
            link,
            net,
            dice,
            auth: None,
            outbox,
            inbox: Bytes::default(),
            is_in: false,
            is_gone: false,
            asked: None,
            script: Vec::new(),
            columns: None,
            left,
            ids: Vec::new(),
        }
    }

    /// One who puts everything right, and goes.
    pub(crate) fn that_tidies_up(mut self, weather: &Weather) -> Self {
        self.script = vec!["RESUME".to_owned()];
        for at in 0..weather.databases {
            self.script.push(format!("RESUME db{at}"));
            self.script.push(format!("ENABLE db{at}"));
        }
        self.script.reverse();
        self.left = 0;
        self
    }

    pub(crate) fn act(&mut self, weather: &Weather) {
        if self.is_gone {
            return;
        }
        self.read(weather);
        if self.is_gone {
            return;
        }
        if self.is_in && self.asked.is_none() && self.outbox.is_empty() {
            self.order(weather);
        } else if self.asked.is_some() && self.dice.one_in(200) {
            // Patience is over.
            return self.leave();
        }
        let mut net = self.net.borrow_mut();
        let room = net.room(self.link);
        let count = weather.wire.piece(&mut self.dice, self.outbox.len().min(room));
        net.write(self.link, &self.outbox.as_slice()[..count]);
        self.outbox.skip(count);
    }

    pub(crate) fn leave(&mut self) {
        self.is_gone = true;
        let how = if self.dice.one_in(2) { End::Eof } else { End::Reset };
        self.net.borrow_mut().leave(self.link, how);
    }

    fn order(&mut self, weather: &Weather) {
        let command = match self.script.pop() {
            Some(command) => command,
            None if self.left == 0 => {
                write::client::terminate(self.outbox.end());
                self.asked = Some("goodbye".to_owned());
                return;
            }
            None => self.think(weather),
        };
        self.left = self.left.saturating_sub(1);
        trace::message(format_args!("admin says"), b'Q', command.as_bytes());
        write::client::query(self.outbox.end(), command.as_bytes());
        self.asked = Some(command);
    }

    fn think(&mut self, weather: &Weather) -> String {
        let orders = &weather.orders;
        let db = if self.dice.one_in(2) {
            String::new()
        } else {
            format!(" db{}", self.dice.under(weather.databases))
        };
        let one = format!(" db{}", self.dice.under(weather.databases));
        let mut choices: Vec<String> = vec!["SHOW version".to_owned(), "SHOW clients".to_owned()];
        if orders.shows {
            choices.push(format!("SHOW {}", self.dice.pick(&VIEWS)));
        }
        if orders.pauses {
            choices.push(format!("PAUSE{db}"));
            choices.push(format!("RESUME{db}"));
            choices.push("RESUME".to_owned());
        }
        if orders.kills {
            choices.push(format!("KILL{db}"));
            choices.push(format!("RESUME{db}"));
            if !self.ids.is_empty() {
                choices.push(format!("KILL_CLIENT {}", self.dice.pick(&self.ids)));
            }
        }
        if orders.reconnects {
            choices.push(format!("RECONNECT{db}"));
            choices.push(format!("WAIT_CLOSE{db}"));
        }
        if orders.reloads {
            choices.push("RELOAD".to_owned());
            choices.push(format!("SET default_pool_size = {}", self.dice.between(1, 4)));
        }
        if orders.disables {
            choices.push(format!("DISABLE{one}"));
            choices.push(format!("ENABLE{one}"));
        }
        if orders.suspends {
            choices.push("SUSPEND".to_owned());
            choices.push("RESUME".to_owned());
        }
        self.dice.pick(&choices).clone()
    }

    fn read(&mut self, weather: &Weather) {
        let count = weather.wire.piece(&mut self.dice, 65_536);
        let end = self.net.borrow_mut().read(self.link, count, &mut self.inbox);
        while let Some(len) = self.inbox.whole() {
            let message = self.inbox.take(len);
            self.hear(message[0], &message[5..], weather);
        }
        if end.is_some() && !self.is_gone {
            let asked = self.asked.as_deref().unwrap_or("");
            let late = weather.timeouts && (!self.is_in || weather.orders.suspends);
            let killed = late || weather.orders.kills || asked == "goodbye";
            assert!(killed, "an admin was hung up on while he waited for {asked:?}");
            self.leave();
        }
    }

    fn hear(&mut self, tag: u8, body: &[u8], weather: &Weather) {
        trace::message(format_args!("           admin hears"), tag, body);
        match tag {
            server::AUTHENTICATION => {
                let mut out = std::mem::take(&mut self.outbox);
                login::answer(&mut self.auth, "admin", false, &mut self.dice, body, out.end());
                self.outbox = out;
            }
            server::READY_FOR_QUERY => {
                self.is_in = true;
                self.asked = None;
            }
            server::ROW_DESCRIPTION => {
                self.columns = Some(u16::from_be_bytes([body[0], body[1]]));
                if self.asked.as_deref() == Some("SHOW clients") {
                    self.ids.clear();
                }
            }
            server::DATA_ROW => {
                let count = u16::from_be_bytes([body[0], body[1]]);
                assert_eq!(Some(count), self.columns, "a row of {:?}", self.asked);
                if self.asked.as_deref() == Some("SHOW clients") {
                    self.remember(body);
                }
            }
            server::ERROR => {
                let fields = ErrorFields::new(body);
                let text = String::from_utf8_lossy(fields.message()).into_owned();
                let asked = self.asked.as_deref().unwrap_or_default();
                if !self.is_in {
                    let late = weather.timeouts && text == "client_login_timeout";
                    return assert!(late, "an admin was not let in: {text}");
                }
                let fine = asked != "RELOAD" && !asked.starts_with("SHOW");
                assert!(fine || text.contains("admin forced"), "{asked:?} brought {text:?}");
            }
            _ => {}
        }
    }

    /// The `id` of a row of SHOW CLIENTS: its one cell that is a number after the last `ptr`.
    fn remember(&mut self, body: &[u8]) {
        let mut rest = &body[2..];
        let mut cells = Vec::new();
        while let Some((len, tail)) = rest.split_first_chunk::<4>() {
            let len = u32::from_be_bytes(*len);
            if len == u32::MAX {
                cells.push("");
                rest = tail;
                continue;
            }
            let (cell, tail) = tail.split_at(len as usize);
            cells.push(std::str::from_utf8(cell).unwrap_or(""));
            rest = tail;
        }
        if let Some(id) = cells.last() {
            self.ids.push((*id).to_owned());
        }
    }
}
