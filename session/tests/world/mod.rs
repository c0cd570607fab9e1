//! A pooler reduced to its relay: clients, servers, and dice for who gets on when and by how much.

use std::collections::VecDeque;
use std::sync::Arc;

use session::{
    ClientSide, Flow, Habit, Own, Rules, Said, ServerSide, Statements, Tracked, Unlinked, Vars,
    differing, from_client, from_server, unlinked,
};

use crate::model::{Backend, Dice, spell};

/// Settings every server starts with.
pub(crate) const VARS: [(&str, &str); 2] = [("TimeZone", "UTC"), ("application_name", "")];

/// What a client sends before it waits for all answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segment(pub(crate) Vec<u8>);

/// What one client is going to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) time_zone: &'static str,
    pub(crate) segments: Vec<Segment>,
}

pub(crate) struct World {
    pub(crate) rules: Rules,
    pub(crate) statements: Statements,
    pub(crate) clients: Vec<Client>,
    pub(crate) servers: Vec<Server>,
    pub(crate) flow: Flow,
    dice: Dice,
    /// Most bytes that travel at once.
    chunk: usize,
    /// Servers closed because they were spoilt.
    pub(crate) closed: usize,
    /// How often a client had to wait for an answer.
    pub(crate) held: usize,
    /// How often parameters were set.
    pub(crate) set: usize,
    /// Whether servers speak up while nobody uses them.
    pub(crate) noisy: bool,
}

pub(crate) struct Client {
    pub(crate) side: ClientSide,
    pub(crate) server: Option<usize>,
    segments: VecDeque<Segment>,
    sending: VecDeque<u8>,
    /// Bytes that wait for a server.
    waiting: Option<Vec<u8>>,
    pub(crate) heard: Vec<u8>,
    /// How much it is to hear before it sends its next segment, and in the end.
    expected: VecDeque<usize>,
    pub(crate) private: Vec<u8>,
    script: Vec<u8>,
}

pub(crate) struct Server {
    pub(crate) side: ServerSide,
    pub(crate) backend: Backend,
    pub(crate) client: Option<usize>,
    /// On their way to the backend.
    sent: VecDeque<u8>,
    /// On their way from the backend.
    said: VecDeque<u8>,
    /// Whether the last thing it said unasked was a notice.
    notice: bool,
}

fn vars(values: &[(&str, &str)]) -> Vars {
    let mut vars = Vars::new(&Tracked::default());
    for (name, value) in values {
        vars.set(name.as_bytes(), value.as_bytes());
    }
    vars
}

impl Client {
    /// A client and what a server of its own would tell it.
    pub(crate) fn new(plan: &Plan) -> Self {
        let values = [("TimeZone", plan.time_zone), ("application_name", "")];
        let mut own = Backend::new(&values);
        let (mut private, mut script, mut expected) = (Vec::new(), Vec::new(), VecDeque::new());
        for Segment(bytes) in &plan.segments {
            expected.push_back(private.len());
            private.extend(own.answer(bytes));
            script.extend_from_slice(bytes);
        }
        Self {
            side: ClientSide::new(vars(&values)),
            server: None,
            segments: plan.segments.iter().cloned().collect(),
            sending: VecDeque::new(),
            waiting: None,
            heard: Vec::new(),
            expected,
            private,
            script,
        }
    }

    fn is_done(&self) -> bool {
        self.segments.is_empty()
            && self.sending.is_empty()
            && self.heard.len() >= self.private.len()
    }
}

impl Server {
    /// `habit`: of its pool's clients.
    pub(crate) fn new(habit: &Arc<Habit>) -> Self {
        let mut side = ServerSide::new(vars(&VARS));
        side.trail.habit = Arc::clone(habit);
        Self {
            side,
            backend: Backend::new(&VARS),
            client: None,
            sent: VecDeque::new(),
            said: VecDeque::new(),
            notice: false,
        }
    }
}

impl World {
    pub(crate) fn new(rules: Rules, plans: &[Plan], servers: usize, seed: u64) -> Self {
        let (mut dice, habit) = (Dice(seed), Arc::default());
        Self {
            rules,
            statements: Statements::new(Arc::new(session::Registry::new(seed)), inert),
            clients: plans.iter().map(Client::new).collect(),
            servers: (0..servers).map(|_| Server::new(&habit)).collect(),
            flow: Flow::default(),
            chunk: dice.pick(&[1, 7, 40, 5000]),
            noisy: dice.one_in(2),
            dice,
            closed: 0,
            held: 0,
            set: 0,
        }
    }

    /// Until everybody has heard everything, and no longer than that can take.
    pub(crate) fn play(&mut self) {
        let mut idle = 0;
        while idle < 2000 && !self.clients.iter().all(Client::is_done) {
            let moved = match self.dice.under(5) {
                0 => self.client_sends(),
                1 => self.link(),
                2 => self.server_reads(),
                3 => self.server_says(),
                _ => self.interject(),
            };
            idle = if moved { 0 } else { idle + 1 };
        }
    }

    /// What went wrong, if anything did.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        for (number, client) in self.clients.iter().enumerate() {
            if client.heard != client.private {
                return Err(format!(
                    "client {number} sent  {}\n should hear {}\n but heard   {}",
                    spell(&client.script),
                    spell(&client.private),
                    spell(&client.heard),
                ));
            }
            if let Some(server) = client.server {
                let side = &self.servers[server].side;
                return Err(format!("client {number} still has server {server}: {side:?}"));
            }
        }
        Ok(())
    }

    fn some(&mut self, bytes: &mut VecDeque<u8>) -> Vec<u8> {
        let count = (1 + self.dice.under(self.chunk)).min(bytes.len());
        bytes.drain(..count).collect()
    }

    fn client_sends(&mut self) -> bool {
        let number = self.dice.under(self.clients.len());
        let client = &mut self.clients[number];
        if client.waiting.is_some() || client.side.is_held() {
            return false;
        }
        if client.sending.is_empty() {
            if client.expected.front().is_none_or(|expected| client.heard.len() < *expected) {
                return false;
            }
            client.expected.pop_front();
            let Some(Segment(bytes)) = client.segments.pop_front() else { return false };
            client.sending.extend(bytes);
        }
        let mut sending = std::mem::take(&mut client.sending);
        let bytes = self.some(&mut sending);
        let client = &mut self.clients[number];
        client.sending = sending;
        if client.server.is_some() {
            self.client_said(number, &bytes);
        } else {
            match unlinked(&mut client.side, &bytes).expect("well formed") {
                Unlinked::Nothing => {}
                Unlinked::Server { from } => client.waiting = Some(bytes[from..].to_vec()),
                Unlinked::Terminate => panic!("nobody said goodbye"),
            }
        }
        true
    }

    fn link(&mut self) -> bool {
        let number = self.dice.under(self.clients.len());
        let at = self.dice.under(self.servers.len());
        let (client, server) = (&mut self.clients[number], &mut self.servers[at]);
        // A notice that has begun may go on while somebody else is served: he does not hear it.
        let quiet = server.said.is_empty() || (server.notice && !server.side.is_at_rest());
        if server.client.is_some() || !quiet {
            return false;
        }
        let Some(bytes) = client.waiting.take() else { return false };
        (client.server, server.client) = (Some(at), Some(number));
        let (mut sql, mut out) = (Vec::new(), Vec::new());
        if differing(&client.side.vars, &server.side.vars, &mut sql) {
            server.side.own(Own::Set, &sql, &mut out);
            server.sent.extend(out);
            self.set += 1;
        }
        self.client_said(number, &bytes);
        true
    }

    fn client_said(&mut self, number: usize, bytes: &[u8]) {
        let Self { clients, servers, statements, rules, flow, .. } = self;
        let client = &mut clients[number];
        let server = &mut servers[client.server.expect("linked")];
        let said = from_client(&mut client.side, &mut server.side, statements, rules, bytes, flow);
        let said = said.expect("nothing wrong with it");
        self.held += usize::from(said == Said::Held);
        assert_ne!(said, Said::Terminate, "nobody said goodbye");
        assert_eq!(said == Said::Held, client.side.is_held());
        flow.to_client.iter(bytes).for_each(|run| client.heard.extend_from_slice(run));
        flow.to_server.iter(bytes).for_each(|run| server.sent.extend(run));
        self.settle(number);
    }

    fn server_reads(&mut self) -> bool {
        let at = self.dice.under(self.servers.len());
        let mut sent = std::mem::take(&mut self.servers[at].sent);
        let bytes = self.some(&mut sent);
        let server = &mut self.servers[at];
        server.sent = sent;
        server.backend.feed(&bytes);
        server.said.extend(server.backend.out.drain(..));
        !bytes.is_empty()
    }

    fn server_says(&mut self) -> bool {
        let at = self.dice.under(self.servers.len());
        let mut said = std::mem::take(&mut self.servers[at].said);
        let bytes = self.some(&mut said);
        self.servers[at].said = said;
        if bytes.is_empty() {
            return false;
        }
        let Self { clients, servers, statements, rules, flow, .. } = self;
        let server = &mut servers[at];
        let number = server.client;
        let mut client = number.map(|number| &mut clients[number]);
        let side = client.as_deref_mut().map(|client| &mut client.side);
        let heard = from_server(&mut server.side, side, statements, rules, &bytes, flow);
        heard.expect("nothing wrong with it");
        for owned in flow.owned.drain(..) {
            assert_eq!(owned.error, None);
        }
        match client {
            Some(client) => {
                flow.to_client.iter(&bytes).for_each(|run| client.heard.extend_from_slice(run));
                flow.to_server.iter(&bytes).for_each(|run| server.sent.extend(run));
            }
            None => assert!(flow.to_client.is_empty() && flow.to_server.is_empty()),
        }
        number.into_iter().for_each(|number| self.settle(number));
        true
    }

    /// A backend speaks up though nobody asked it.
    fn interject(&mut self) -> bool {
        let at = self.dice.under(self.servers.len());
        let server = &mut self.servers[at];
        if !self.noisy || server.client.is_some() || self.dice.under(30) > 0 {
            return false;
        }
        if !server.said.is_empty() || !server.side.is_at_rest() {
            return false;
        }
        server.notice = self.dice.one_in(2);
        server.backend.interject(|out| {
            if server.notice {
                let report = wire::Report { message: b"hello", ..Default::default() };
                wire::write::server::notice_response(out, &report);
            } else {
                wire::write::server::parameter_status(out, b"in_hot_standby", b"on");
            }
        });
        server.said.extend(server.backend.out.drain(..));
        false
    }

    /// Part a client from a server that is done.
    fn settle(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let Some(at) = client.server else { return };
        let server = &mut self.servers[at];
        if !server.side.is_done(&client.side) {
            return;
        }
        (client.server, server.client) = (None, None);
        // What the relay believes must be so: what is on its way is nothing that anybody is owed.
        let on_the_way: Vec<u8> = server.sent.drain(..).collect();
        server.backend.feed(&on_the_way);
        server.said.extend(server.backend.out.drain(..));
        assert!(server.said.is_empty(), "released with {:?} to come", server.said);
        assert_eq!(server.backend.status, wire::Status::Idle, "released in a transaction");
        if server.side.is_spoilt() {
            self.closed += 1;
            self.servers[at] = Server::new(&server.side.trail.habit.clone());
        }
    }
}

/// What the model runs sets only what its servers report; nobody has to ask.
fn inert(_: &[u8]) -> session::Reading {
    session::Reading::new(session::Marks::default(), Box::default())
}
