//! What an application asks next.

use wire::tag::{client, server};
use wire::{Namespace, write};

use crate::dice::Dice;
use crate::weather::{PoolMode, Weather};

/// Values of the parameters of `engine::SETTABLE`, as the server spells them.
pub(crate) const VALUES: [&[&[u8]]; 6] = [
    &[b"UTF8", b"LATIN1"],
    &[b"ISO, MDY", b"German, DMY"],
    &[b"UTC", b"CET", b"Japan"],
    &[b"on", b"off"],
    &[b"", b"psql", b"it's", br"back\slash", b"a;b"],
    &[b"postgres", b"iso_8601"],
];

/// Names of statements and portals. The first is the unnamed one.
const NAMES: [&[u8]; 4] = [b"", b"s1", b"s2", b"s3"];
/// Statements that clients share.
const SHARED: [&[u8]; 12] = [
    b"r1/*-*/",
    b"table r2/*-*/",
    b"table r3/*-*/",
    b"r5,40/*-*/",
    b"table r1/*-*/",
    b"n/*-*/",
    b"z3/*-*/",
    b"SET TimeZone='CET'/*-*/",
    b"o2,10/*-*/",
    b"DEALLOCATE ALL/*-*/",
    b"",
    b"f/*-*/",
];
/// The one of them that does away with all.
const FORGETTING: &[u8] = b"DEALLOCATE ALL/*-*/";
/// Of these, those that always may be used.
const HARMLESS: usize = 6;

/// One application's plans.
#[derive(Debug)]
pub(crate) struct Requests {
    client: u32,
    request: u32,
    /// So many more.
    left: usize,
    /// Extended messages were said after the last Sync.
    unsynced: bool,
    /// It opened a transaction, and has not said how it ends.
    in_block: bool,
    /// It asked for a COPY, and waits for leave to send the data.
    copying: Option<Copy>,
    may_copy: bool,
    copy_fails: bool,
    /// It said the last thing but the goodbye.
    wound_up: bool,
    /// It ended such that all of it is answered.
    ends_answered: bool,
    began_blocks: bool,
    /// The unnamed statement must not be run again: it is a COPY, and would want its data, or it does
    /// away with all others, and nothing may be asked behind it.
    unnamed_once: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Copy {
    Simple,
    Extended,
}

impl Requests {
    pub(crate) fn new(client: u32, left: usize) -> Self {
        Self {
            client,
            request: 0,
            left,
            unsynced: false,
            in_block: false,
            copying: None,
            may_copy: false,
            copy_fails: false,
            wound_up: false,
            ends_answered: false,
            began_blocks: false,
            unnamed_once: false,
        }
    }

    /// It hears what the server said.
    pub(crate) fn heard(&mut self, tag: u8, _body: &[u8]) {
        match tag {
            server::COPY_IN => self.may_copy = true,
            server::ERROR | server::READY_FOR_QUERY if !self.may_copy => self.copying = None,
            _ => {}
        }
    }

    /// Whether all of it must have been answered before the pooler hangs up. Statement mode does
    /// that to those who begin transactions.
    pub(crate) fn ends_answered(&self, weather: &Weather) -> bool {
        self.ends_answered && !(weather.mode == PoolMode::Statement && self.began_blocks)
    }

    /// More may be asked although answers are still to come.
    pub(crate) fn is_free_to_pipeline(&self) -> bool {
        self.may_copy || self.unsynced
    }

    /// Whether it has earned this.
    pub(crate) fn may_be_refused(&self, text: &str) -> bool {
        self.began_blocks && text == "transaction blocks not allowed in statement pooling mode"
    }

    /// The next messages. Returns whether the goodbye is the last of them.
    pub(crate) fn next(
        &mut self,
        dice: &mut Dice,
        weather: &Weather,
        winding_up: bool,
        idle: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        if let Some(copy) = self.copying {
            if self.may_copy {
                (self.copying, self.may_copy) = (None, false);
                self.copy_data(dice, weather, copy, out);
            }
            return false;
        }
        self.may_copy = false;
        if self.left == 0 || winding_up {
            return self.wind_up(dice, idle, out);
        }
        self.left -= 1;
        self.request += 1;
        let rates = &weather.rates;
        if dice.one_in(rates.functions) {
            self.function(dice, weather, out);
        } else if dice.one_in(rates.copies) {
            self.copy(dice, weather, idle, out);
        } else if dice.one_in(rates.extended) {
            self.batch(dice, weather, out);
        } else {
            self.simple(dice, weather, out);
        }
        false
    }

    /// End what is under way, wait for the answers, and go; or go at once.
    fn wind_up(&mut self, dice: &mut Dice, idle: bool, out: &mut Vec<u8>) -> bool {
        if !self.wound_up {
            self.wound_up = true;
            write::client::sync(out);
            self.unsynced = false;
            if std::mem::take(&mut self.in_block) {
                self.query(b"k", out);
            }
            self.query(b"r1", out);
            // Some go without waiting for the answers, and get them still.
            self.ends_answered = true;
            if dice.one_in(2) {
                write::client::terminate(out);
                return true;
            }
            return false;
        }
        if idle {
            write::client::terminate(out);
        }
        idle
    }

    fn query(&mut self, ops: &[u8], out: &mut Vec<u8>) {
        self.request += 1;
        let (client, request) = (self.client, self.request);
        let text = [ops, format!("/*{client}.{request}*/").as_bytes()].concat();
        write::client::query(out, &text);
    }

    fn simple(&mut self, dice: &mut Dice, weather: &Weather, out: &mut Vec<u8>) {
        if self.unsynced && !dice.one_in(4) {
            // Else it may be skipped.
            write::client::sync(out);
            self.unsynced = false;
        }
        if dice.one_in(30) {
            return write::client::query(out, b"");
        }
        let mut ops = Vec::new();
        let count = *dice.pick(&[1, 1, 1, 2, 3]);
        for at in 0..count {
            if at > 0 {
                ops.push(b';');
            }
            let op = self.op(dice, weather, count == 1);
            ops.extend_from_slice(&op);
        }
        self.query(&ops, out);
    }

    /// One statement.
    fn op(&mut self, dice: &mut Dice, weather: &Weather, alone: bool) -> Vec<u8> {
        let rates = &weather.rates;
        let blocks = weather.mode != PoolMode::Statement || dice.one_in(20);
        if self.in_block && dice.one_in(3) {
            self.in_block = false;
            return if dice.one_in(2) { b"c".to_vec() } else { b"k".to_vec() };
        }
        if weather.listens() && dice.one_in(rates.listens) {
            return hearing(dice);
        }
        if blocks && dice.one_in(rates.transactions) {
            (self.in_block, self.began_blocks) = (true, true);
            return b"b".to_vec();
        }
        if dice.one_in(rates.errors) {
            return (*dice.pick(&[&b"f"[..], b"f", b"f", b"!", b"O2,10"])).to_vec();
        }
        if dice.one_in(rates.sets) {
            return assignment(dice);
        }
        if dice.one_in(rates.crashes) {
            return b"x".to_vec();
        }
        if alone && dice.one_in(rates.forgets) {
            return (*dice.pick(&[&b"DEALLOCATE ALL"[..], b"DISCARD ALL", b"ra"])).to_vec();
        }
        if dice.one_in(rates.large) {
            let pad = *dice.pick(&[300, 5000, 70_000]);
            return format!("r{},{pad}", dice.between(1, 3)).into_bytes();
        }
        if (weather.keeps_sessions() || weather.follows()) && dice.one_in(rates.traces) {
            return match dice.under(4) {
                0 => format!("t{}", dice.under(2)).into_bytes(),
                _ => format!("j{}", dice.between(1, 9)).into_bytes(),
            };
        }
        if dice.one_in(rates.limits) {
            return format!("l{}", dice.under(3)).into_bytes();
        }
        match dice.under(8) {
            0 => b"n".to_vec(),
            1 => format!("z{}", dice.between(1, 40)).into_bytes(),
            2 if dice.one_in(rates.copies) => format!("o{},20", dice.under(4)).into_bytes(),
            _ => format!("r{}", dice.under(4)).into_bytes(),
        }
    }

    fn function(&mut self, dice: &mut Dice, weather: &Weather, out: &mut Vec<u8>) {
        let (client, request) = (self.client, self.request);
        let large = dice.one_in(weather.rates.large);
        let pad = if large { 70_000 } else { dice.under(20) };
        write::message(out, client::FUNCTION_CALL, |out| {
            out.extend_from_slice(format!("{client}.{request} ").as_bytes());
            out.resize(out.len() + pad, 7);
        });
    }

    // ---- COPY.

    fn copy(&mut self, dice: &mut Dice, weather: &Weather, idle: bool, out: &mut Vec<u8>) {
        let idle = idle && !self.unsynced;
        if self.unsynced {
            write::client::sync(out);
            self.unsynced = false;
        }
        let fails_at = if dice.one_in(weather.rates.errors) { dice.between(1, 4) } else { 0 };
        self.copy_fails = fails_at > 0;
        let ops = format!("i{fails_at}");
        let extended = weather.rates.extended > 0 && dice.one_in(2);
        let copy = if extended { Copy::Extended } else { Copy::Simple };
        if extended {
            self.unnamed(format!("{ops}/*-*/").as_bytes(), out);
        } else {
            self.query(ops.as_bytes(), out);
        }
        match dice.under(3) {
            // It waits, as it should.
            0 if idle => {
                if extended {
                    flush(out);
                }
                self.copying = Some(copy);
                self.may_copy = false;
            }
            // libpq before version 14 says Sync behind its Execute. The copying server eats it.
            1 if extended => {
                write::client::sync(out);
                self.copy_data(dice, weather, copy, out);
            }
            _ => self.copy_data(dice, weather, copy, out),
        }
    }

    fn copy_data(&mut self, dice: &mut Dice, weather: &Weather, copy: Copy, out: &mut Vec<u8>) {
        let (client, request) = (self.client, self.request);
        for _ in 0..dice.under(6) {
            let large = dice.one_in(weather.rates.large);
            let pad = if large { 20_000 } else { dice.under(40) };
            write::message(out, client::COPY_DATA, |out| {
                out.extend_from_slice(format!("{client}.{request} ").as_bytes());
                out.resize(out.len() + pad, b'.');
            });
            match dice.under(24) {
                0 | 1 => flush(out),
                // Behind the message that a COPY fails at, nobody between client and server can tell
                // whether it was eaten.
                2 if copy == Copy::Extended && !self.copy_fails => write::client::sync(out),
                _ => {}
            }
        }
        if dice.one_in(4) {
            write::message(out, client::COPY_FAIL, |out| out.extend_from_slice(b"no more\0"));
        } else {
            write::message(out, client::COPY_DONE, |_| {});
        }
        if copy == Copy::Extended {
            write::client::sync(out);
            self.unsynced = false;
        }
    }

    // ---- Extended messages.

    /// Parse, Bind and Execute of the unnamed statement.
    fn unnamed(&mut self, query: &[u8], out: &mut Vec<u8>) {
        write::client::parse(out, b"", query, &[]);
        self.unnamed_once = query.starts_with(b"i") || query == FORGETTING;
        self.bind(b"", b"", out);
        execute(b"", 0, out);
        self.unsynced = true;
    }

    fn bind(&mut self, portal: &[u8], statement: &[u8], out: &mut Vec<u8>) {
        let who = format!("{}.{}", self.client, self.request);
        write::message(out, client::BIND, |out| {
            for name in [portal, statement] {
                out.extend_from_slice(name);
                out.push(0);
            }
            out.extend_from_slice(&[0, 0, 0, 1]);
            out.extend_from_slice(&(who.len() as u32).to_be_bytes());
            out.extend_from_slice(who.as_bytes());
            out.extend_from_slice(&[0, 0]);
        });
    }

    fn batch(&mut self, dice: &mut Dice, weather: &Weather, out: &mut Vec<u8>) {
        let rates = &weather.rates;
        let named = weather.rewrites() || weather.keeps_sessions();
        for _ in 0..dice.between(1, 3) {
            self.request += 1;
            let query = self.statement(dice, weather);
            if query == FORGETTING {
                // Whoever asks on in the same batch gets no right answer from a pooler: it cannot
                // wait for what it must know, for the server sends nothing before the batch's end.
                self.unnamed(FORGETTING, out);
                break;
            }
            if !named {
                self.unnamed(&query, out);
                continue;
            }
            match dice.under(6) {
                0..3 => self.whole(dice, &query, out),
                3 => self.prepared(dice, out),
                _ => self.odds_and_ends(dice, &query, out),
            }
            if dice.one_in(8) {
                flush(out);
            }
        }
        self.unsynced = true;
        if !named || self.unnamed_once || !dice.one_in(rates.unsynced) {
            write::client::sync(out);
            self.unsynced = false;
        } else if dice.one_in(2) {
            flush(out);
        }
    }

    fn statement(&mut self, dice: &mut Dice, weather: &Weather) -> Vec<u8> {
        let rates = &weather.rates;
        let blocks = weather.mode != PoolMode::Statement;
        if self.in_block && dice.one_in(4) {
            self.in_block = false;
            return (*dice.pick(&[&b"c/*-*/"[..], b"k/*-*/"])).to_vec();
        }
        if blocks && dice.one_in(rates.transactions.saturating_mul(2)) {
            (self.in_block, self.began_blocks) = (true, true);
            return b"b/*-*/".to_vec();
        }
        if dice.one_in(rates.errors) {
            return (*dice.pick(&[&b"f/*-*/"[..], b"!/*-*/"])).to_vec();
        }
        if weather.follows() && dice.one_in(rates.traces) {
            return (*dice.pick(&[&b"j4/*-*/"[..], b"j5/*-*/", b"t1/*-*/", b"t0/*-*/"])).to_vec();
        }
        let at = dice.under(SHARED.len() - 1);
        let at = if at == 9 && rates.forgets == 0 { 0 } else { at };
        SHARED[if dice.one_in(2) { at.min(HARMLESS) } else { at }].to_vec()
    }

    /// Parse, Bind, Describe, Execute.
    fn whole(&mut self, dice: &mut Dice, query: &[u8], out: &mut Vec<u8>) {
        let statement = *dice.pick(&NAMES);
        let portal: &[u8] = if dice.one_in(5) { b"p1" } else { b"" };
        if !statement.is_empty() && dice.one_in(2) {
            write::client::close(out, Namespace::Statement, statement);
        }
        let types: &[u8] = if dice.one_in(3) { &[0, 0, 0, 25] } else { &[] };
        write::client::parse(out, statement, query, types);
        if dice.one_in(3) {
            write::client::describe(out, Namespace::Statement, statement);
        }
        self.bind(portal, statement, out);
        if dice.one_in(3) {
            write::client::describe(out, Namespace::Portal, portal);
        }
        execute(portal, *dice.pick(&[0, 0, 1, 2]), out);
    }

    /// Bind and Execute of something prepared before, if it was.
    fn prepared(&mut self, dice: &mut Dice, out: &mut Vec<u8>) {
        let from = usize::from(self.unnamed_once);
        let statement = *dice.pick(&NAMES[from..]);
        self.bind(b"", statement, out);
        execute(b"", 0, out);
    }

    fn odds_and_ends(&mut self, dice: &mut Dice, query: &[u8], out: &mut Vec<u8>) {
        let name = *dice.pick(&NAMES);
        match dice.under(6) {
            0 => write::client::describe(out, Namespace::Statement, name),
            1 => write::client::describe(out, Namespace::Portal, b"p1"),
            2 => write::client::close(out, Namespace::Statement, name),
            3 => write::client::close(out, Namespace::Portal, name),
            4 => execute(b"p1", 1, out),
            _ => write::client::parse(out, name, query, &[]),
        }
    }
}

fn execute(portal: &[u8], rows_max: u32, out: &mut Vec<u8>) {
    write::message(out, client::EXECUTE, |out| {
        out.extend_from_slice(portal);
        out.push(0);
        out.extend_from_slice(&rows_max.to_be_bytes());
    });
}

fn flush(out: &mut Vec<u8>) {
    write::message(out, client::FLUSH, |_| {});
}

/// LISTEN, NOTIFY and UNLISTEN.
fn hearing(dice: &mut Dice) -> Vec<u8> {
    let channel = dice.under(3).min(dice.under(3));
    match dice.under(12) {
        0..5 => format!("LISTEN \"c{channel}\""),
        5..10 => format!("NOTIFY \"c{channel}\""),
        10 => format!("UNLISTEN \"c{channel}\""),
        _ => "UNLISTEN *".to_owned(),
    }
    .into_bytes()
}

/// `SET name='value'`, sometimes one that is refused.
fn assignment(dice: &mut Dice) -> Vec<u8> {
    let at = dice.under(VALUES.len());
    let name = crate::engine::SETTABLE[at];
    if dice.one_in(8) {
        return format!("SET {name}='refused'").into_bytes();
    }
    let value = *dice.pick(VALUES[at]);
    let value = String::from_utf8_lossy(value).replace('\'', "''");
    if value.contains('\\') {
        return format!("SET {name}=E'{}'", value.replace('\\', r"\x5c")).into_bytes();
    }
    format!("SET {name}='{value}'").into_bytes()
}
