//! Prepared statements on their way out: the messages that prepare, bind, describe and close them, and what a server has to have in front
//! of those.

use std::sync::Arc;

use wire::tag::client as tag;
use wire::{BindNames, Named, Namespace, Parse, write};

use crate::cache::Standing;
use crate::dress::{By, Dressed};
use crate::fit::{Fits, is_planned};
use crate::ledger::{Undo, What, Wipe};
use crate::lend::Looks;
use crate::names::{Meaning, Name};
use crate::outward::{Message, Next, Outward, answer, wipes};
use crate::rules::Fault;
use crate::server::{Phase, Unnamed};
use crate::statements::{Ground, NOBODY, PREFIX, Statement, TAKEN};

impl Outward<'_> {
    pub(crate) fn parse(&mut self, message: &Message<'_>) -> Next {
        let Ok(parse) = Parse::read(message.body) else {
            // The server finds it broken too, and says so.
            self.pass_as(message, What::Parse);
            return Next::On;
        };
        let ground = self.ground();
        let statement = self.statements.intern(parse.query, parse.types.as_bytes(), ground);
        self.dress(&statement);
        if wipes(parse.query) {
            self.server.ledger.wipe(Wipe::Execute);
        }
        if self.waits_for_names(&statement) {
            return Next::Hold;
        }
        self.lend_ahead(&statement);
        if parse.name.is_empty() {
            if self.hide_ours(&statement) == Looks::Later {
                return Next::Hold;
            }
            if self.executes(&statement) {
                // It does away with the last one even if what it executes cannot be lent.
                self.close_unnamed();
                self.lend_for_statement(&statement);
            }
            self.server.set_unnamed(Some(&mut *self.client), &Unnamed::Is(statement));
            self.pass_as(message, What::Parse);
            return Next::On;
        }
        match self.client.meaning(parse.name, &self.server.ledger) {
            Meaning::Open => Next::Hold,
            Meaning::Nothing if self.is_made(parse.name) => {
                self.parse_beside(parse.name, &statement, message);
                Next::On
            }
            Meaning::Nothing if self.looks(&statement) => {
                match self.parse_looking(parse.name, &statement, message) {
                    true => Next::On,
                    false => Next::Hold,
                }
            }
            Meaning::Nothing => self.parse_new(&parse, &statement),
            Meaning::Statement(_, name, _) => {
                self.parse_again(&parse, name);
                Next::On
            }
        }
    }

    /// A Parse under a name that is free.
    fn parse_new(&mut self, parse: &Parse<'_>, statement: &Arc<Statement>) -> Next {
        let standing = self.server.known.standing(statement.id, &self.server.ledger);
        // A Parse is only certain to succeed if the same text did, and if nothing stands between
        // that could have failed the transaction or dropped the statement.
        let certain = self.server.ledger.is_quiet() && self.server.status != wire::Status::Failed
            || planted::is("parse-believed-too-early");
        let name: Arc<[u8]> = parse.name.into();
        let alike = !self.executes(statement);
        self.revoke(&name);
        match standing {
            Standing::Open => return Next::Hold,
            Standing::Prepared if certain && alike && !self.server.ledger.is_long() => {
                self.flow.counted.client_parses += 1;
                self.fake(What::ParseFaked, &name, Some(statement));
                return Next::On;
            }
            Standing::Prepared => self.inject_close(statement),
            Standing::Absent => self.make_room(statement),
        }
        self.lend_for_shape(statement);
        self.flow.counted.client_parses += 1;
        self.flow.counted.server_parses += 1;
        self.give_name(&name, Some(statement), false);
        self.learn(statement);
        self.owe(What::Parse, Some(name));
        let types = parse.types.as_bytes();
        self.say(|out| write::client::parse(out, &statement.name, parse.query, types));
        if statement.told.is_silent() && self.rules.watches() && is_planned(&statement.query) {
            self.have_told(statement);
        }
        Next::On
    }

    /// A Parse under a name that is taken. PostgreSQL is to say so itself: whatever else is wrong
    /// with the statement it says first, and the error does to the transaction what errors do.
    fn parse_again(&mut self, parse: &Parse<'_>, name: Arc<[u8]>) {
        self.flow.counted.client_parses += 1;
        self.inject(What::Close, |out| write::client::close(out, Namespace::Statement, TAKEN));
        // The one kind of statement that can be prepared in a failed transaction as well.
        self.inject(What::Parse, |out| write::client::parse(out, TAKEN, b"ROLLBACK", b""));
        self.owe(What::Parse, Some(name));
        let types = parse.types.as_bytes();
        self.say(|out| write::client::parse(out, TAKEN, parse.query, types));
    }

    pub(crate) fn bind(&mut self, message: &Message<'_>) -> Result<Next, Fault> {
        let Some(names) = BindNames::find(message.body) else {
            self.watch_statement(None);
            self.pass_as(message, What::Bind);
            return Ok(Next::On);
        };
        let (statement, name, unproven) = match self.look_up(names.statement, Some(message)) {
            Found::Hold => return Ok(Next::Hold),
            Found::AsItIs => {
                let unnamed = match &self.client.unnamed {
                    Unnamed::Is(statement) if names.statement.is_empty() => {
                        Some(Arc::clone(statement))
                    }
                    _ => None,
                };
                if unnamed.as_ref().is_some_and(|statement| wipes(&statement.query)) {
                    self.server.ledger.wipe(Wipe::Execute);
                }
                self.watch_parameters(unnamed.as_deref(), message);
                if unnamed.is_none() && self.rules.watches() && self.is_absent(names.statement) {
                    self.mark_unread();
                } else {
                    self.watch_statement(unnamed.as_deref());
                }
                if unnamed.is_none() && self.rules.watches() {
                    // What SQL has prepared, the protocol may run.
                    self.watch_prepared(names.statement, 0);
                }
                self.bind_portal(names.portal, unnamed.as_ref());
                let told = unnamed.as_ref().is_none_or(|statement| !statement.told.is_silent());
                self.server.is_untold = !told && names.portal.is_empty();
                let taking = unnamed.filter(|statement| statement.takes_pids);
                let body = taking.and_then(|of| self.translated_bind(message, Some(&of.query)));
                self.pass_as(&message.with(body.as_deref()), What::Bind);
                return Ok(Next::On);
            }
            Found::Nobody(name) => (None, name, false),
            Found::Statement { statement, name, unproven } => (Some(statement), name, unproven),
        };
        // Prepared long ago, perhaps, but it is now that it may be run. What it is told comes first: that may be to read
        // what sequences gave.
        self.watch_parameters(statement.as_deref(), message);
        self.watch_statement(statement.as_deref());
        self.bind_portal(names.portal, statement.as_ref());
        if statement.as_ref().is_some_and(|statement| wipes(&statement.query)) {
            self.server.ledger.wipe(Wipe::Execute);
        }
        if let Some(statement) = statement.as_ref().filter(|_| unproven) {
            self.wager(statement, &name, message);
        }
        let server_name = statement.as_ref().map_or(NOBODY, |found| self.name_of(found, &name));
        let taking = statement.as_ref().filter(|statement| statement.takes_pids);
        let body = taking.and_then(|of| self.translated_bind(message, Some(&of.query)));
        let message = &message.with(body.as_deref());
        let len = renamed(message, names.statement, server_name)?;
        self.flow.counted.binds += 1;
        if let Some(statement) = &statement {
            self.touch(statement);
            self.server.is_untold = statement.told.is_silent() && names.portal.is_empty();
        }
        self.owe(What::Bind, Some(Arc::clone(&name)));
        self.say(|out| {
            out.push(tag::BIND);
            out.extend_from_slice(&len);
            for name in [names.portal, server_name] {
                out.extend_from_slice(name);
                out.push(0);
            }
        });
        self.pass_body(message, names.rest);
        Ok(Next::On)
    }

    /// Describe or Close.
    pub(crate) fn named(&mut self, message: &Message<'_>, what: What) -> Next {
        let Ok(Named { kind: Namespace::Statement, name }) = Named::read(message.tag, message.body)
        else {
            if what == What::Describe && !self.server.portals.is_empty() {
                self.use_portal(message.body.get(1..).unwrap_or_default(), false);
            }
            if what == What::Describe && self.server.is_untold {
                self.watch_portal(message.body);
            }
            self.pass_as(message, what);
            return Next::On;
        };
        if what == What::Close {
            return self.close(message, name);
        }
        if self.describe_instead(name) {
            return Next::On;
        }
        match self.look_up(name, None) {
            Found::Hold => return Next::Hold,
            Found::AsItIs => {
                if let (b"", Unnamed::Is(statement)) = (name, &self.client.unnamed) {
                    let statement = Arc::clone(statement);
                    self.describe_lent(&statement);
                    self.watch_description(&statement);
                }
                self.pass_as(message, what);
            }
            Found::Nobody(name) => self.describe(NOBODY, name),
            Found::Statement { statement, name, unproven } => {
                if unproven {
                    self.wager(&statement, &name, message);
                }
                self.touch(&statement);
                self.describe_lent(&statement);
                self.watch_description(&statement);
                let server_name: Box<[u8]> = self.name_of(&statement, &name).into();
                self.describe(&server_name, name);
            }
        }
        Next::On
    }

    pub(crate) fn describe(&mut self, server_name: &[u8], name: Arc<[u8]>) {
        self.owe(What::Describe, Some(name));
        self.say(|out| write::client::describe(out, Namespace::Statement, server_name));
    }

    fn close(&mut self, message: &Message<'_>, name: &[u8]) -> Next {
        if name.is_empty() {
            self.server.set_unnamed(Some(&mut *self.client), &Unnamed::Nothing);
            self.pass_as(message, What::Close);
            return Next::On;
        }
        match self.client.meaning(name, &self.server.ledger) {
            Meaning::Open => return Next::Hold,
            Meaning::Statement(_, name, _) if self.server.ledger.is_long() => {
                self.revoke(&name);
                self.give_name(&name, None, false);
                self.owe(What::Close, None);
                self.say(|out| write::client::close(out, Namespace::Statement, NOBODY));
            }
            // The statement stays on the server, for others and for next time.
            Meaning::Statement(_, name, _) => {
                self.revoke(&name);
                self.fake(What::CloseFaked, &name, None);
            }
            // One of ours, which is not this client's to close.
            Meaning::Nothing if name.starts_with(PREFIX) => {
                self.owe(What::Close, None);
                self.say(|out| write::client::close(out, Namespace::Statement, NOBODY));
            }
            // Perhaps it was made by an SQL PREPARE.
            Meaning::Nothing => {
                if self.is_made(name) {
                    self.server.trail.mark_unknown();
                }
                self.pass_as(message, What::Close);
            }
        }
        Next::On
    }

    /// Which statement a Describe or this Bind is about. The server has it by then.
    fn look_up(&mut self, name: &[u8], bind: Option<&Message<'_>>) -> Found {
        if name.is_empty() {
            if let Unnamed::Is(statement) = &self.client.unnamed
                && self.server.trusts_unnamed()
            {
                let statement = Arc::clone(statement);
                if self.waits_for_names(&statement) || self.hide_ours(&statement) == Looks::Later {
                    return Found::Hold;
                }
                self.lend_ahead(&statement);
                self.lend_for_shape(&statement);
            }
            return if self.have_unnamed(bind) { Found::AsItIs } else { Found::Hold };
        }
        match self.client.meaning(name, &self.server.ledger) {
            Meaning::Open => Found::Hold,
            Meaning::Statement(statement, ..) if self.waits_for_names(&statement) => Found::Hold,
            Meaning::Statement(statement, name, _) if self.looks(&statement) => {
                if self.hide_ours(&statement) == Looks::Later {
                    return Found::Hold;
                }
                self.bind_instead(&statement, Some(&name), bind);
                self.lend_for_statement(&statement);
                Found::Statement { statement, name, unproven: false }
            }
            Meaning::Statement(statement, name, unproven) => {
                self.lend_ahead(&statement);
                let statement = if unproven { self.renewed(statement, &name) } else { statement };
                let mut grounded = None;
                if self.lacks(&statement) {
                    match self.suits(&statement, Some(&name), bind) {
                        Fits::Yes => grounded = self.grounded(&statement),
                        Fits::Later => return Found::Hold,
                        Fits::No => return Found::Nobody(name),
                    }
                }
                let statement = grounded.clone().unwrap_or(statement);
                let statement = self.present(&statement).unwrap_or(statement);
                let absent = self.lacks(&statement);
                if absent && unproven {
                    self.client.names(|names| names.prove(&name));
                } else if absent && statement.has_changed() {
                    self.provoke(None);
                    return Found::Nobody(name);
                }
                if !self.have(&statement, grounded.map(|anew| (&name, anew))) {
                    return Found::Hold;
                }
                Found::Statement { statement, name, unproven: unproven && !absent }
            }
            // PostgreSQL says itself that there is no such statement, but for one of ours there is.
            Meaning::Nothing if name.starts_with(PREFIX) => Found::Nobody(name.into()),
            Meaning::Nothing => Found::AsItIs,
        }
    }

    /// Whether the server, which lacks `statement`, can be given it now: by our name for it, or as the unnamed one if the
    /// client has no name for it. If not, the client is to hear why.
    fn suits(
        &mut self,
        statement: &Arc<Statement>,
        name: Option<&Arc<[u8]>>,
        bind: Option<&Message<'_>>,
    ) -> Fits {
        let by = if name.is_none() { By::None } else { By::Ours };
        let dressed = match self.is_fitted(statement) {
            // It cannot be.
            true => Dressed::No,
            false => self.parse_dressed(statement, by),
        };
        match dressed {
            Dressed::Later => return Fits::Later,
            Dressed::Struck(error) => {
                self.provoke(Some(error));
                return Fits::No;
            }
            Dressed::No => {}
        }
        match bind {
            Some(_) => self.bind_instead(statement, name, bind),
            None => self.tell_parameters(statement),
        }
        let fits = self.fits(statement);
        if fits == Fits::No {
            self.provoke(None);
        }
        fits
    }

    pub(crate) fn lacks(&self, statement: &Statement) -> bool {
        self.server.known.standing(statement.id, &self.server.ledger) == Standing::Absent
    }

    /// What the client has never used, and is not any more what it was for others: it is as it is now.
    fn renewed(&mut self, statement: Arc<Statement>, name: &Arc<[u8]>) -> Arc<Statement> {
        if !statement.has_changed() {
            return statement;
        }
        let Statement { query, types, ground, .. } = &*statement;
        let anew = self.statements.intern(query, types, *ground);
        self.client.names(|names| names.turn_into(name, &anew));
        anew
    }

    /// What the client parsed with other settings than it has now, and this server has not, as it is parsed with these: it is
    /// another statement from then on, for nobody else must come to share it. `None`: it is the same.
    fn grounded(&mut self, statement: &Statement) -> Option<Arc<Statement>> {
        let present = self.ground();
        if statement.ground == present || statement.ground == Ground::Unknown {
            return None;
        }
        let anew = self.statements.intern(&statement.query, statement.told_types(), present);
        anew.told.adopt(&statement.told);
        self.dress(&anew);
        Some(anew)
    }

    /// A statement whose text holds the pids of clients, with those of their present servers instead. It is
    /// another one each time they have others.
    fn present(&mut self, statement: &Statement) -> Option<Arc<Statement>> {
        let text = statement.holds_pids.then(|| self.translated_text(&statement.query))??;
        Some(self.statements.intern(&text, &statement.types, statement.ground))
    }

    /// See to it that the server has this statement, and that this name of the client's means this other one then. `false`:
    /// not to be said yet.
    fn have(
        &mut self,
        statement: &Arc<Statement>,
        renamed: Option<(&Arc<[u8]>, Arc<Statement>)>,
    ) -> bool {
        match self.server.known.standing(statement.id, &self.server.ledger) {
            // What it executes may have been another's.
            Standing::Prepared if self.executes(statement) => self.inject_close(statement),
            Standing::Prepared => {
                if let Some((name, anew)) = renamed {
                    self.client.names(|names| names.turn_into(name, &anew));
                }
                return true;
            }
            Standing::Open => return false,
            Standing::Absent => self.make_room(statement),
        }
        self.lend_for_shape(statement);
        if let Some((name, anew)) = renamed {
            // Should it fail, all is as it was: where it can be parsed as it was meant, it is.
            self.give_name(name, Some(&anew), false);
        }
        self.learn(statement);
        let types = self.types(statement);
        self.inject(What::Parse, |out| {
            write::client::parse(out, &statement.name, &statement.query, types);
        });
        true
    }

    /// See to it that the server's unnamed statement is the client's. `false`: not to be said yet.
    fn have_unnamed(&mut self, bind: Option<&Message<'_>>) -> bool {
        if !self.server.trusts_unnamed() {
            return false;
        }
        let present = match &self.client.unnamed {
            Unnamed::Is(statement) if statement.holds_pids => {
                let statement = Arc::clone(statement);
                self.present(&statement)
            }
            _ => None,
        };
        let is_present = present.is_some();
        let wanted = present.map_or_else(|| self.client.unnamed.clone(), Unnamed::Is);
        if wanted.is_same(&self.server.unnamed) || planted::is("unnamed-of-others") {
            return true;
        }
        match &wanted {
            Unnamed::Unknown => {}
            Unnamed::Is(statement) => match self.suits(statement, None, bind) {
                Fits::Yes => self.parse_unnamed(statement, is_present),
                Fits::Later => return false,
                Fits::No => {}
            },
            Unnamed::Nothing => {
                self.server.set_unnamed(None, &wanted);
                self.inject(What::Close, |out| {
                    write::client::close(out, Namespace::Statement, b"");
                });
            }
        }
        true
    }

    /// The client's unnamed statement goes, in front of another that is to come.
    fn close_unnamed(&mut self) {
        self.server.set_unnamed(Some(&mut *self.client), &Unnamed::Nothing);
        self.inject(What::Close, |out| write::client::close(out, Namespace::Statement, b""));
    }

    /// The server is given the client's unnamed statement: as it is now, or with others' pids in it as they are now.
    fn parse_unnamed(&mut self, statement: &Arc<Statement>, is_present: bool) {
        let anew = self.grounded(statement).unwrap_or_else(|| Arc::clone(statement));
        self.server.set_unnamed(None, &Unnamed::Is(Arc::clone(&anew)));
        if !is_present {
            let before =
                std::mem::replace(&mut self.client.unnamed, Unnamed::Is(Arc::clone(&anew)));
            self.server.ledger.note(Undo::Turned(before));
        }
        let types = self.types(&anew);
        self.inject(What::Parse, |out| write::client::parse(out, b"", &anew.query, types));
    }

    /// Close what was not used for longest, until there is room for one more.
    pub(crate) fn make_room(&mut self, statement: &Statement) {
        let weight = statement.weight();
        while let Some(old) = self.server.known.in_the_way(weight, self.rules, &self.server.ledger)
        {
            self.inject_close(&old);
        }
    }

    pub(crate) fn inject_close(&mut self, statement: &Statement) {
        let (at, id) = (self.server.ledger.next(), statement.id);
        let before = self.server.known.close(id, at);
        self.server.ledger.note(Undo::Known { id, before });
        self.inject(What::Close, |out| {
            write::client::close(out, Namespace::Statement, &statement.name);
        });
    }

    /// The next entry makes the server prepare this.
    pub(crate) fn learn(&mut self, statement: &Arc<Statement>) {
        let at = self.server.ledger.next();
        let before = self.server.known.prepare(statement, at);
        self.server.ledger.note(Undo::Known { id: statement.id, before });
    }

    /// The next entry needs this.
    fn touch(&mut self, statement: &Statement) {
        self.server.known.touch(statement.id, self.server.ledger.next());
    }

    /// The next entry gives this meaning to a name of the client's.
    pub(crate) fn give_name(
        &mut self,
        name: &Arc<[u8]>,
        statement: Option<&Arc<Statement>>,
        unproven: bool,
    ) {
        let since = self.server.ledger.next();
        let meaning = Name { statement: statement.cloned(), since, unproven };
        let before = self.client.names(|names| names.put(name, Some(meaning)));
        self.server.ledger.note(Undo::Name { name: Arc::clone(name), before });
    }

    /// Answer a Parse or Close ourselves, now or when its turn comes.
    fn fake(&mut self, what: What, name: &Arc<[u8]>, statement: Option<&Arc<Statement>>) {
        self.server.phase = Phase::Unsynced;
        if let Some(statement) = statement {
            self.touch(statement);
        }
        // Half a notice may have gone to the client, and nothing must come between its halves.
        let wait = !self.server.ledger.is_empty() || self.server.is_torn();
        if wait && !planted::is("own-answers-out-of-turn") {
            self.give_name(name, statement, true);
            self.owe(what, None);
            return;
        }
        let meaning = statement.map(|statement| Name {
            statement: Some(Arc::clone(statement)),
            since: 0,
            unproven: true,
        });
        self.client.names(|names| names.put(name, meaning));
        self.flow.to_client.say(|out| answer(what, out));
    }
}

/// What a name in a Bind or Describe comes to.
enum Found {
    /// Ours, and this is the client's name for it.
    Statement {
        statement: Arc<Statement>,
        name: Arc<[u8]>,
        /// Others prepared it, and the client uses it for the first time.
        unproven: bool,
    },
    /// To be looked for under a name that nobody has.
    Nobody(Arc<[u8]>),
    /// The name is left as it is.
    AsItIs,
    Hold,
}

/// The length field of a message in which a name is replaced.
fn renamed(message: &Message<'_>, old: &[u8], new: &[u8]) -> Result<[u8; 4], Fault> {
    let len = (message.len as usize + 4).saturating_sub(old.len()).saturating_add(new.len());
    match i32::try_from(len) {
        Ok(len) => Ok(len.to_be_bytes()),
        Err(_) => Err(Fault::TooLong { tag: message.tag }),
    }
}
