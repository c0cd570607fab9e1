//! An admin's connection: messages in, orders to all workers, answers out.

use std::sync::Arc;

use admin::{Answer, Columns, Command, Console, Next, Refusal, Role};
use io::Driver;
use pool::WorkerId;

use crate::ask::{Outcome, Whose};
use crate::client::State;
use crate::end::Why;
use crate::mail::Ask;
use crate::order::{Order, Scope, Shutdown};
use crate::worker::Worker;
use crate::world::{Errand, World};

/// No command is longer, in bytes.
const MESSAGE_MAX: usize = 64 * 1024;

/// An admin's session.
pub(crate) struct Desk {
    console: Console,
    /// The question whose answer is awaited, and what it is about.
    asked: Option<(u64, Asking)>,
    /// What takes back what is under way, should its admin leave or press ^C.
    undo: Option<Order>,
    /// Not yet read: what came while a command runs, or half a message.
    unread: Vec<u8>,
    /// KILL_CLIENT of itself: it is answered, then it goes.
    pub(crate) killed: bool,
    /// Its messages are being read: an answer that comes at once must not begin to read anew.
    reading: bool,
    /// It gave a SUSPEND, which ends with it.
    suspends: bool,
}

/// What is done with the answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Asking {
    Show,
    KillClient,
    Suspend,
    Plain,
}

impl Desk {
    /// Whether `ask` is the question it waits for, here on worker `me`.
    pub(crate) fn asks(&self, ask: Ask, me: WorkerId) -> bool {
        ask.from == me && self.asked.is_some_and(|(number, _)| number == ask.number)
    }

    /// So much is unread that no more should come.
    pub(crate) fn is_full(&self) -> bool {
        self.unread.len() > MESSAGE_MAX
    }

    pub(crate) fn new(role: Role, columns: Columns) -> Self {
        Self {
            console: Console::new(role).with(columns),
            asked: None,
            undo: None,
            unread: Vec::new(),
            killed: false,
            reading: false,
            suspends: false,
        }
    }
}

impl<D: Driver, W: World> Worker<D, W> {
    pub(crate) fn admin_said(&mut self, slot: u32, bytes: &[u8]) {
        let State::Console(desk) = &mut self.clients[slot as usize].state else { return };
        desk.unread.extend_from_slice(bytes);
        self.read_desk(slot);
    }

    /// The admin took what it was sent: on with what it said meanwhile.
    pub(crate) fn admin_drained(&mut self, slot: u32) {
        self.read_desk(slot);
    }

    /// Read on, up to a command that has to be waited for.
    fn read_desk(&mut self, slot: u32) {
        let Some(desk) = self.desk(slot) else { return };
        if std::mem::replace(&mut desk.reading, true) {
            return;
        }
        self.read_messages(slot);
        if let Some(desk) = self.desk(slot) {
            desk.reading = false;
            if desk.killed && desk.asked.is_none() {
                self.client_leaves(slot, Why::text("admin forced disconnect"));
            }
        }
        self.regulate(slot);
    }

    fn desk(&mut self, slot: u32) -> Option<&mut Desk> {
        match &mut self.clients.get_mut(slot as usize)?.state {
            State::Console(desk) => Some(desk),
            _ => None,
        }
    }

    fn read_messages(&mut self, slot: u32) {
        let mut out = Vec::new();
        loop {
            let Some(client) = self.clients.get_mut(slot as usize) else { return };
            // One that asks and does not listen waits, like every client.
            let deaf = self.driver.unsent(client.conn) > self.high_water;
            let State::Console(desk) = &mut client.state else { return };
            if desk.asked.is_some() || deaf {
                break;
            }
            let (tag, body) = match cut(&mut desk.unread) {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(TooLong) => {
                    self.send_to_client(slot, &out);
                    return self.client_leaves(slot, Why::text("bad packet header"));
                }
            };
            if tag == wire::tag::client::TERMINATE {
                self.send_to_client(slot, &out);
                return self.client_leaves(slot, Why::CloseRequest);
            }
            // As PgBouncer counts them, those refused too.
            if tag == wire::tag::client::QUERY {
                self.console_stats.total.query_count += 1;
                self.console_stats.total.xact_count += 1;
            }
            match desk.console.message(tag, &body, &mut out) {
                Next::More => {}
                Next::Close => {
                    self.send_to_client(slot, &out);
                    return self.client_leaves(slot, Why::CloseRequest);
                }
                Next::Run(command) => {
                    self.send_to_client(slot, &out);
                    out.clear();
                    self.run(slot, command);
                }
            }
        }
        self.send_to_client(slot, &out);
    }

    /// Carry out a command, or see that it is carried out.
    fn run(&mut self, slot: u32, command: Command) {
        match self.order_for(&command) {
            Err(refusal) => self.say(slot, &Answer::Refused(refusal)),
            Ok(Plan::All(order, asking)) => {
                let id = self.clients[slot as usize].card.id;
                // The answer may be there before the number is known: it is kept first.
                let number = self.upcoming_ask();
                let undo = undoing(&order);
                self.await_answer(slot, number, asking, undo);
                self.ask_all(&order, Whose::Admin { slot, id });
            }
            Ok(Plan::Steward(errand)) => {
                let id = self.clients[slot as usize].card.id;
                let ask = self.open_ask(Whose::Admin { slot, id }, 1);
                self.await_answer(slot, ask.number, Asking::Plain, None);
                self.world.errand(errand(ask));
            }
            Ok(Plan::Leave(how)) => {
                self.world.errand(Errand::Shutdown { how });
                // SHUTDOWN is answered by the end of the process; its milder forms at once.
                if how != Shutdown::Immediate {
                    self.say(slot, &Answer::Done);
                }
            }
        }
    }

    fn await_answer(&mut self, slot: u32, number: u64, asking: Asking, undo: Option<Order>) {
        let suspends = asking == Asking::Suspend;
        if let State::Console(desk) = &mut self.clients[slot as usize].state {
            desk.asked = Some((number, asking));
            desk.undo = undo;
            desk.suspends |= suspends;
        }
    }

    fn order_for(&mut self, command: &Command) -> Result<Plan, Refusal> {
        let plain = |order| Ok(Plan::All(order, Asking::Plain));
        let leaving = self.standing.shutdown.is_some();
        match command {
            Command::Show(view) => Ok(Plan::All(Order::Facts(*view), Asking::Show)),
            Command::KillClient(id) => Ok(Plan::All(Order::KillClient(*id), Asking::KillClient)),
            Command::ResetReport => plain(Order::ForgetReport),
            Command::Reload => Ok(Plan::Steward(Box::new(|ask| Errand::Reload { ask }))),
            Command::Set { key, value } => {
                let (key, value) = (key.clone(), value.clone());
                Ok(Plan::Steward(Box::new(|ask| Errand::Set { ask, key, value })))
            }
            Command::Shutdown(admin::Shutdown::Immediate) => Ok(Plan::Leave(Shutdown::Immediate)),
            Command::Shutdown(_) if leaving => Err(Refusal::ShuttingDown),
            Command::Shutdown(admin::Shutdown::Clients) => {
                Ok(Plan::Leave(Shutdown::WaitForClients))
            }
            Command::Shutdown(admin::Shutdown::Servers) => {
                Ok(Plan::Leave(Shutdown::WaitForServers))
            }
            _ if leaving => Err(Refusal::ShuttingDown),
            Command::Pause(name) => {
                let scope = self.scope(name.as_deref(), "pause")?;
                let already = self.standing.all_paused || self.standing.suspended;
                if already { Err(Refusal::AlreadyPaused) } else { plain(Order::Pause(scope)) }
            }
            Command::Resume(name) => {
                let scope =
                    name.as_deref().map(|name| self.one_there(name, "resume")).transpose()?;
                match &scope {
                    None if !self.standing.all_paused && !self.standing.suspended => {
                        Err(Refusal::NotPaused)
                    }
                    Some(name) if !self.standing.marks(name).paused => {
                        Err(Refusal::DatabaseNotPaused(name.to_string()))
                    }
                    _ => plain(Order::Resume(scope)),
                }
            }
            Command::Suspend if self.standing.suspended || self.standing.all_paused => {
                Err(Refusal::AlreadyPaused)
            }
            Command::Suspend if self.standing.any_paused() => Err(Refusal::SuspendWithPaused),
            Command::Suspend => Ok(Plan::All(Order::Suspend, Asking::Suspend)),
            Command::Disable(name) => plain(Order::Disable(self.one(name, "disable")?)),
            Command::Enable(name) => plain(Order::Enable(self.one_there(name, "enable")?)),
            Command::Reconnect(name) => {
                let scope = self.scope(name.as_deref(), "reconnect")?;
                let epoch = self.commons.next_epoch(&scope);
                plain(Order::Reconnect(scope, epoch))
            }
            Command::Kill(name) => plain(Order::Kill(self.scope(name.as_deref(), "kill")?)),
            Command::WaitClose(name) => {
                plain(Order::WaitClose(self.scope(name.as_deref(), "wait")?))
            }
        }
    }

    fn scope(&self, name: Option<&str>, verb: &'static str) -> Result<Scope, Refusal> {
        name.map(|name| self.one(name, verb)).transpose()
    }

    /// A database that is listed, or that somebody has used or said something of: `*` makes none for this.
    fn one_there(&self, name: &str, verb: &'static str) -> Result<Arc<str>, Refusal> {
        let is_there = self.site.config.databases.contains_key(name)
            || self.standing.databases.contains_key(name)
            || self.commons.census().of_database(name) > 0
            || self.commons.bank().db_open(name) > 0;
        let one = self.one(name, verb)?;
        is_there.then_some(one).ok_or_else(|| Refusal::NoSuchDatabase(name.to_owned()))
    }

    fn one(&self, name: &str, verb: &'static str) -> Result<Arc<str>, Refusal> {
        if name == admin::CONSOLE {
            return Err(Refusal::AdminDatabase(verb));
        }
        match self.site.config.database(name) {
            Some(_) => Ok(name.into()),
            None => Err(Refusal::NoSuchDatabase(name.to_owned())),
        }
    }

    /// All workers have answered an admin's question.
    pub(crate) fn admin_answered(&mut self, slot: u32, id: u64, outcome: Outcome) {
        let client = self.clients.get_mut(slot as usize).filter(|client| client.card.id == id);
        let Some(client) = client else { return };
        let State::Console(desk) = &mut client.state else { return };
        let Some((_, asking)) = desk.asked.take() else { return };
        let answer = match (outcome.failed, asking) {
            (Some(refusal), _) => Answer::Refused(refusal),
            (None, Asking::Show) => Answer::Facts(&outcome.facts),
            (None, Asking::KillClient) if !outcome.found => {
                Answer::Refused(Refusal::ClientNotFound)
            }
            (None, _) => Answer::Done,
        };
        self.say(slot, &answer);
        self.read_desk(slot);
    }

    fn say(&mut self, slot: u32, answer: &Answer<'_>) {
        let State::Console(desk) = &mut self.clients[slot as usize].state else { return };
        let mut out = Vec::new();
        desk.console.answer(answer, &mut out);
        self.send_to_client(slot, &out);
    }

    /// An admin hung up: what he waited for is over; a PAUSE or SUSPEND of his that is not done yet
    /// is taken back.
    pub(crate) fn desk_left(&mut self, desk: Desk) {
        if let Some((number, _)) = desk.asked {
            self.take_back(number, desk.undo);
        } else if desk.suspends && self.standing.suspended {
            self.tell_all(&Order::Resume(None));
        }
    }

    /// ^C on the console: PAUSE and its like are taken back.
    pub(crate) fn cancel_console(&mut self, slot: u32) {
        let State::Console(desk) = &mut self.clients[slot as usize].state else { return };
        let Some((number, _)) = desk.asked.take() else { return };
        let undo = desk.undo.take();
        self.take_back(number, undo);
        self.say(slot, &Answer::Refused(Refusal::Canceled));
        self.read_desk(slot);
    }

    fn take_back(&mut self, number: u64, undo: Option<Order>) {
        self.forget_ask(number);
        if let Some(order) = undo {
            self.tell_all(&order);
        }
    }
}

/// What takes `order` back while it is under way.
fn undoing(order: &Order) -> Option<Order> {
    match order {
        Order::Pause(scope) => Some(Order::Resume(scope.clone())),
        Order::Suspend => Some(Order::Resume(None)),
        _ => None,
    }
}

/// How a command is carried out.
enum Plan {
    All(Order, Asking),
    Steward(Box<dyn FnOnce(Ask) -> Errand>),
    Leave(Shutdown),
}

/// A message longer than any command.
struct TooLong;

/// Takes the first whole message off the front.
fn cut(unread: &mut Vec<u8>) -> Result<Option<(u8, Vec<u8>)>, TooLong> {
    let Some((header, rest)) = unread.split_first_chunk::<5>() else { return Ok(None) };
    let [tag, len @ ..] = *header;
    let len = usize::try_from(u32::from_be_bytes(len)).map_err(|_| TooLong)?;
    if !(4..=MESSAGE_MAX).contains(&len) {
        return Err(TooLong);
    }
    let Some(body) = rest.get(..len - 4) else { return Ok(None) };
    let message = (tag, body.to_vec());
    unread.drain(..len + 1);
    Ok(Some(message))
}
