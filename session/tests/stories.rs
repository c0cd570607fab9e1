//! One client and one server, step by step.

mod model;
mod script;

use std::sync::Arc;

use model::{Backend, spell};
use script::Script;
use session::{
    ClientSide, Fault, Flow, Heard, Mode, Own, Owned, Rules, Said, ServerSide, Statements, Tracked,
    Unlinked, Vars, from_client, from_server, unlinked,
};
use wire::{Malformed, Namespace, Status, tag};

/// A client, the server it is linked to, and who they are talking through.
struct Pair {
    client: ClientSide,
    server: ServerSide,
    backend: Backend,
    statements: Statements,
    rules: Rules,
    flow: Flow,
}

impl Pair {
    fn new(rules: Rules) -> Self {
        let vars = Vars::new(&Tracked::default());
        Self {
            client: ClientSide::new(vars.clone()),
            server: ServerSide::new(vars),
            backend: Backend::new(&[]),
            statements: Statements::new(Arc::new(session::Registry::new(1)), session::read),
            rules,
            flow: Flow::default(),
        }
    }

    /// The client says this, and the server reads it. What the client hears at once is returned.
    fn say(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Self { client, server, statements, rules, flow, .. } = self;
        from_client(client, server, statements, rules, bytes, flow).expect("nothing wrong with it");
        self.carry(bytes)
    }

    /// The server says this. What the client hears is returned.
    fn hear(&mut self, bytes: &[u8]) -> (Heard, Vec<u8>) {
        let heard = self.try_hear(bytes).expect("nothing wrong with it");
        (heard, self.carry(bytes))
    }

    fn try_hear(&mut self, bytes: &[u8]) -> Result<Heard, Fault> {
        let Self { client, server, statements, rules, flow, .. } = self;
        from_server(server, Some(client), statements, rules, bytes, flow)
    }

    fn carry(&mut self, input: &[u8]) -> Vec<u8> {
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        self.flow.to_server.copy_to(input, &mut to_server);
        self.flow.to_client.copy_to(input, &mut to_client);
        self.backend.feed(&to_server);
        to_client
    }

    /// Everything that comes of what the client says.
    fn ask(&mut self, script: Script) -> String {
        let mut heard = self.say(&script.0);
        loop {
            let said = std::mem::take(&mut self.backend.out);
            if said.is_empty() {
                return spell(&heard);
            }
            heard.extend(self.hear(&said).1);
        }
    }

    fn is_free(&self) -> bool {
        self.server.is_free(&self.client)
    }
}

fn script() -> Script {
    Script::default()
}

fn ready(status: Status) -> Vec<u8> {
    let mut out = Vec::new();
    wire::write::server::ready_for_query(&mut out, status);
    out
}

fn error(severity: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let report = wire::Report { severity, code: b"57P01", message: b"gone", ..Default::default() };
    wire::write::server::error_response(&mut out, &report);
    out
}

fn pair() -> Pair {
    Pair::new(Rules::default())
}

fn prepared(max: u32) -> Pair {
    Pair::new(Rules { prepared_max: max, ..Rules::default() })
}

/// The corridor: both directions pass whole buffers on, and the server is free at the end.
#[test]
fn a_simple_query_passes_untouched() {
    let mut pair = pair();
    let query = script().query("select 1").0;
    let Pair { client, server, statements, rules, flow, .. } = &mut pair;
    let said = from_client(client, server, statements, rules, &query, flow);
    assert_eq!(said, Ok(Said::More));
    assert!(flow.to_server.is_whole(query.len()) && flow.to_client.is_empty());
    assert!(!pair.is_free() && pair.server.owes());

    let answer = Backend::new(&[]).answer(&query);
    assert_eq!(pair.try_hear(&answer), Ok(Heard::default()));
    assert!(pair.flow.to_client.is_whole(answer.len()) && pair.flow.to_server.is_empty());
    assert!(pair.is_free());
    assert_eq!((pair.flow.counted.queries, pair.flow.counted.transactions), (1, 1));
}

/// A server with half of somebody's message on it would read the next client's bytes as the rest.
#[test]
fn no_server_is_free_inside_a_message() {
    let stream = script().parse("s", "select 1").bind("", "s").sync().query("select 2").0;
    for cut in 1..stream.len() {
        let mut pair = pair();
        pair.say(&stream[..cut]);
        let said = std::mem::take(&mut pair.backend.out);
        pair.hear(&said);
        let (mut rest, mut scanner) = (&stream[..cut], wire::Scanner::default());
        let mut last = None;
        while let Ok(Some(piece)) = scanner.next(&mut rest) {
            last = piece.ends.then_some(piece.tag);
        }
        // A header of which no body has come was kept back, and can go to any server.
        let between = !scanner.is_inside() && matches!(last, None | Some(b'S' | b'Q'));
        assert_eq!(pair.is_free(), between, "cut at {cut}");
    }
}

#[test]
fn every_request_is_waited_for() {
    let mut pair = pair();
    pair.say(&script().query("select 1").query("select 2").sync().0);
    for left in [true, true, false] {
        pair.hear(&ready(Status::Idle));
        assert_eq!(pair.server.owes(), left);
        assert_eq!(pair.is_free(), !left);
    }
    assert_eq!(pair.try_hear(&ready(Status::Idle)), Err(Fault::Unexpected { tag: b'Z' }));
}

#[test]
fn a_transaction_keeps_its_server() {
    let mut pair = pair();
    assert_eq!(pair.ask(script().query("begin")), "C[BEGIN.] Z[T] ");
    assert!(!pair.is_free() && pair.server.in_transaction());
    pair.ask(script().query("fail"));
    assert_eq!(pair.server.status(), Status::Failed);
    pair.ask(script().query("rollback"));
    assert!(pair.is_free());
}

/// The server discards the Query, and will answer nothing but the Sync.
#[test]
fn after_an_error_even_a_query_is_skipped() {
    for cut in [0, 1, 2] {
        let mut pair = pair();
        let failing = script().parse("", "bad").bind("", "").execute("", 0);
        let rest = script().query("rollback");
        let error = "E[SERROR.VERROR.C42601.Msyntax error in bad..] ";
        if cut == 0 {
            assert_eq!(pair.ask(Script([failing.0, rest.0].concat())), error);
        } else {
            assert_eq!(pair.ask(failing), error);
            assert_eq!(pair.ask(rest), "");
        }
        assert!(!pair.server.owes() && !pair.is_free(), "it waits for a Sync");
        assert_eq!(pair.ask(script().sync()), "Z[I] ");
        assert!(pair.is_free());
    }
}

/// libpq's PQexecParams sends its Sync before it learns that it is to copy.
#[test]
fn a_copy_eats_the_syncs_before_its_end() {
    let mut pair = pair();
    pair.ask(script().parse("", "copyin").bind("", "").execute("", 0).sync());
    assert!(!pair.is_free());
    assert_eq!(pair.ask(script().data("row").sync()), "");
    assert!(!pair.is_free());
    assert_eq!(pair.ask(script().copy_done().flush()), "C[COPY 1.] ");
    assert!(!pair.is_free() && !pair.server.owes(), "its batch is not over");
    assert_eq!(pair.ask(script().sync()), "Z[I] ");
    assert!(pair.is_free());
}

/// Nobody can tell whether the Sync was read before the COPY failed or is answered after it. Both
/// are relayed, and the server is not used again.
#[test]
fn a_failed_copy_that_ate_a_sync_is_closed() {
    for answers in [1, 2] {
        let mut pair = pair();
        pair.ask(script().parse("", "copyin").bind("", "").execute("", 0).sync());
        pair.say(&script().data("bad!").copy_done().sync().0);
        pair.backend.out.clear();
        pair.hear(&error(b"ERROR"));
        for _ in 0..answers {
            assert_eq!(pair.hear(&ready(Status::Idle)).1, ready(Status::Idle));
        }
        assert!(pair.server.is_spoilt() && !pair.is_free());
        assert!(pair.server.is_done(&pair.client), "so it can be closed, and the client go on");
    }
}

/// psql keeps sending rows until it has read the error. Then its server is long gone.
#[test]
fn the_rest_of_a_failed_copy_needs_no_server() {
    let mut pair = pair();
    pair.ask(script().query("copyin"));
    let answer = pair.ask(script().data("bad!"));
    assert_eq!(answer, "E[SERROR.VERROR.C22P04.Mbad row..] Z[I] ");
    assert!(pair.is_free());
    let late = script().data("row").copy_done().flush().query("select 1").0;
    for size in 1..late.len() {
        let (mut rest, mut got) = (late.as_slice(), None);
        while got.is_none() && !rest.is_empty() {
            let (bytes, behind) = rest.split_at(size.min(rest.len()));
            rest = behind;
            match unlinked(&mut pair.client, bytes).expect("well formed") {
                Unlinked::Nothing => {}
                Unlinked::Server { from } => got = Some([&bytes[from..], behind].concat()),
                Unlinked::Terminate => panic!("nobody said goodbye"),
            }
        }
        let query = got.expect("the query needs a server");
        assert_eq!(pair.ask(Script(query)), {
            spell(&Backend::new(&[]).answer(&script().query("select 1").0))
        });
        assert!(pair.is_free());
    }
}

#[test]
fn a_copy_both_ways_is_never_over() {
    let mut pair = pair();
    pair.say(&script().query("START_REPLICATION").0);
    pair.hear(b"W\0\0\0\x07\0\0\0");
    pair.say(&script().data("feedback").0);
    pair.hear(&ready(Status::Idle));
    assert!(!pair.is_free() && !pair.server.is_done(&pair.client));
}

/// What comes before the goodbye is answered; the goodbye is for us.
#[test]
fn a_goodbye_is_not_passed_on() {
    let mut pair = pair();
    let stream = script().query("insert").message(tag::client::TERMINATE, b"").query("lost").0;
    let Pair { client, server, statements, rules, flow, .. } = &mut pair;
    let said = from_client(client, server, statements, rules, &stream, flow);
    assert_eq!(said, Ok(Said::Terminate));
    pair.carry(&stream);
    assert_eq!(pair.backend.log, b"Q");
}

#[test]
fn what_a_client_may_not_say_is_a_fault() {
    let strict = Rules { packet_max: 20, pqexec: false, ..Rules::default() };
    let cases = [
        (script().query("x").0, Fault::PqexecDisallowed),
        (script().data("more than twenty bytes").0, Fault::TooLong { tag: b'd' }),
        (script().message(b'p', b"secret\0").0, Fault::UnknownMessage { tag: b'p' }),
        (b"Q\0\0\0\x03".to_vec(), Fault::Client(Malformed::Length { tag: b'Q', len: 3 })),
    ];
    for (bytes, fault) in cases {
        let mut pair = Pair::new(strict);
        let Pair { client, server, statements, rules, flow, .. } = &mut pair;
        assert_eq!(from_client(client, server, statements, rules, &bytes, flow), Err(fault));
        assert!(!fault.is_servers());
    }
}

#[test]
fn what_a_server_may_not_say_is_a_fault() {
    for (bytes, tag) in
        [(&b"1\0\0\0\x04"[..], b'1'), (b"D\0\0\0\x06\0\0", b'D'), (b"R\0\0\0\x04", b'R')]
    {
        let mut pair = pair();
        assert_eq!(pair.try_hear(bytes), Err(Fault::Unexpected { tag }));
        pair.say(&script().sync().0);
        assert_eq!(pair.try_hear(bytes), Err(Fault::Unexpected { tag }), "the Sync is not it");
    }
    let mut pair = pair();
    pair.say(&script().sync().0);
    let wrong = Fault::Server(Malformed::TransactionStatus(b'X'));
    assert_eq!(pair.try_hear(b"Z\0\0\0\x05X"), Err(wrong));
}

/// An administrator ends the process: the client hears so, and the worker learns that it is over.
#[test]
fn a_server_that_goes_says_so() {
    for asked in [false, true] {
        let mut pair = pair();
        if asked {
            pair.say(&script().query("select 1").0);
        }
        let (heard, told) = pair.hear(&error(b"FATAL"));
        assert!(heard.fatal);
        // Whoever has asked for nothing gets another server, and need not know.
        let expected = if asked { error(b"FATAL") } else { Vec::new() };
        assert_eq!(told, expected);
        assert!(!pair.is_free());
    }
    let mut pair = pair();
    let Pair { server, statements, rules, flow, .. } = &mut pair;
    let heard = from_server(server, None, statements, rules, &error(b"FATAL"), flow);
    assert!(heard.is_ok_and(|heard| heard.fatal) && pair.flow.to_client.is_empty());
}

/// What a server says to nobody is heard by nobody, but its settings are noted.
#[test]
fn an_idle_server_talks_to_itself() {
    let mut pair = pair();
    let mut out = Vec::new();
    wire::write::server::parameter_status(&mut out, b"TimeZone", b"CET");
    wire::write::server::notice_response(&mut out, &wire::Report::default());
    for byte in &out {
        let Pair { server, statements, rules, flow, .. } = &mut pair;
        let heard = from_server(server, None, statements, rules, &[*byte], flow);
        assert_eq!(heard, Ok(Heard::default()));
        assert!(flow.to_client.is_empty());
    }
    assert_eq!(pair.server.vars.value(b"timezone"), Some(&b"CET"[..]));
    assert_eq!(pair.client.vars.value(b"timezone"), None);
    assert!(pair.is_free());
}

/// In statement mode a transaction is not to begin. Its answer is kept back for our own to replace.
#[test]
fn statement_mode_takes_no_transactions() {
    let mut pair = Pair::new(Rules { mode: Mode::Statement, ..Rules::default() });
    pair.say(&script().query("begin").0);
    let said = std::mem::take(&mut pair.backend.out);
    let (heard, told) = pair.hear(&said);
    assert!(heard.left_open);
    assert_eq!(spell(&told), "C[BEGIN.] ");
}

/// A secret is asked for by the extended protocol; nobody hears the answer, in whatever pieces it comes.
#[test]
fn a_lookup_is_nobody_elses_and_leaves_nothing_behind() {
    use wire::write::server as say;
    let row = b"\0\x02\0\0\0\x03ann\xff\xff\xff\xff";
    let mut good = Vec::new();
    say::parse_complete(&mut good);
    say::bind_complete(&mut good);
    wire::write::message(&mut good, tag::server::ROW_DESCRIPTION, |out| {
        out.extend_from_slice(b"\0\x02");
    });
    wire::write::message(&mut good, tag::server::DATA_ROW, |out| out.extend_from_slice(row));
    say::command_complete(&mut good, b"SELECT 1");
    say::close_complete(&mut good);
    say::ready_for_query(&mut good, Status::Idle);
    let mut bad = Vec::new();
    let report = wire::Report { severity: b"ERROR", code: b"42P01", ..wire::Report::default() };
    say::error_response(&mut bad, &report);
    say::ready_for_query(&mut bad, Status::Idle);
    for (answer, finds) in [(good, true), (bad, false)] {
        let mut pair = pair();
        pair.server.look_up(b"SELECT $1", b"ann", &mut Vec::new());
        assert!(!pair.is_free());
        for byte in answer {
            let Pair { server, statements, rules, flow, .. } = &mut pair;
            let heard = from_server(server, None, statements, rules, &[byte], flow);
            assert_eq!(heard, Ok(Heard::default()));
            assert!(flow.to_client.is_empty());
        }
        let [Owned { kind: Own::Lookup, error, found: Some(found), .. }] = &pair.flow.owned[..]
        else {
            panic!("{:?}", pair.flow.owned);
        };
        assert_eq!(error.is_none(), finds);
        assert_eq!(found.columns, finds.then_some(2));
        assert_eq!(found.row.as_deref(), finds.then_some(&row[..]));
        assert!(pair.is_free());
        assert!(!format!("{found:?}").contains("ann"), "there are secrets in it");
    }
}

/// Our own questions come first, and their answers are for us.
#[test]
fn our_own_queries_are_nobody_elses() {
    let mut pair = pair();
    let mut out = Vec::new();
    pair.client.vars.set(b"DateStyle", b"ISO");
    pair.server.own(Own::Set, b"SET DateStyle='ISO'", &mut out);
    pair.backend.feed(&out);
    assert_eq!(pair.ask(script().query("select 1")), {
        spell(&Backend::new(&[]).answer(&script().query("select 1").0))
    });
    let set = Owned { kind: Own::Set, error: None, found: None, rows: Vec::new() };
    assert_eq!(pair.flow.owned, [set]);
    // What the backend reported meanwhile is the spelling that the client takes over.
    assert_eq!(pair.client.vars, pair.server.vars);
    assert_eq!(pair.flow.counted.queries, 1);

    pair.flow.owned.clear();
    pair.server.own(Own::Reset, b"fail", &mut Vec::new());
    let answer = Backend::new(&[]).answer(&script().query("fail").0);
    for byte in answer {
        assert_eq!(pair.hear(&[byte]).1, b"");
    }
    let owned = pair.flow.owned.first().expect("answered");
    let fields = wire::ErrorFields::new(owned.error.as_deref().unwrap_or_default());
    assert_eq!((owned.kind, fields.code()), (Own::Reset, &b"22012"[..]));
    assert!(pair.is_free());
}

/// The server spells it its own way. Both sides keep that, so that it is not set again.
#[test]
fn the_servers_spelling_is_taken_over() {
    let mut pair = pair();
    pair.client.vars.set(b"DateStyle", b"ISO");
    pair.server.vars.set(b"DateStyle", b"German, DMY");
    let (mut sql, mut out) = (Vec::new(), Vec::new());
    assert!(session::differing(&pair.client.vars, &pair.server.vars, &mut sql));
    assert_eq!(sql, b"SET DateStyle='ISO';");
    pair.server.own(Own::Set, &sql, &mut out);
    let mut answer = Vec::new();
    wire::write::server::command_complete(&mut answer, b"SET");
    wire::write::server::parameter_status(&mut answer, b"DateStyle", b"ISO, DMY");
    wire::write::server::ready_for_query(&mut answer, Status::Idle);
    assert_eq!(pair.hear(&answer).1, b"");
    assert_eq!(pair.client.vars.value(b"DateStyle"), Some(&b"ISO, DMY"[..]));
    assert!(!session::differing(&pair.client.vars, &pair.server.vars, &mut sql));
}

/// A hundred clients with the same statement cost the server one Parse.
#[test]
fn a_statement_is_prepared_once() {
    let mut pair = pair();
    for _ in 0..100 {
        pair.client = ClientSide::new(Vars::new(&Tracked::default()));
        let answer = pair.ask(script().parse("mine", "select 1").run("mine").sync());
        assert!(
            answer.starts_with("1[] 2[] D[") && answer.ends_with("C[SELECT 1.] Z[I] "),
            "{answer}"
        );
        assert_eq!(pair.client.prepared(), 1);
        assert!(pair.is_free());
    }
    assert_eq!((pair.backend.parsed, pair.server.prepared()), (1, 1));
    assert_eq!((pair.flow.counted.client_parses, pair.flow.counted.server_parses), (100, 1));
}

/// The client's statement is not on its new server. It does not notice.
#[test]
fn statements_follow_their_client() {
    for name in ["s", ""] {
        let mut pair = pair();
        pair.ask(script().parse(name, "select 1").sync());
        // Of the same pool.
        let habit = pair.server.trail.habit.clone();
        pair.server = ServerSide::new(Vars::new(&Tracked::default()));
        pair.server.trail.habit = habit;
        pair.backend = Backend::new(&[]);
        let answer = pair.ask(script().describe(Namespace::Statement, name).run(name).sync());
        assert!(answer.starts_with("t["), "{answer}");
        assert_eq!(pair.backend.log, b"PDBES");
        assert!(pair.is_free());
    }
}

/// All names go by an Execute, and the batch goes on: an old name is free, or unknown, at once. Whether it is
/// depends on the answer, which is asked for.
#[test]
fn what_an_execute_forgot_is_forgotten_in_its_own_batch() {
    let mut pair = pair();
    pair.ask(script().parse("a", "select one").parse("z", "deallocate all").sync());
    let forget = script().bind("", "z").execute("", 0);
    let heard = pair.ask(forget.parse("a", "select two").bind("", "a").execute("", 0).sync());
    assert!(heard.starts_with("2[] C[DEALLOCATE ALL.] 1[] 2[] D["), "{heard}");
    pair.ask(script().parse("z", "deallocate all").sync());
    let heard = pair.ask(script().bind("", "z").execute("", 0).bind("", "a").execute("", 0).sync());
    assert!(heard.starts_with("2[] C[DEALLOCATE ALL.] E["), "{heard}");
    assert!(heard.contains("C26000."), "{heard}");
}

/// So it is where the portal is older than the batch.
#[test]
fn what_an_older_portal_forgot_is_forgotten() {
    let mut pair = pair();
    pair.ask(script().query("begin"));
    let forget = script().parse("", "deallocate all").bind("p", "");
    pair.ask(script().parse("a", "select one").sync());
    pair.ask(Script([forget.0, script().sync().0].concat()));
    let heard = pair.ask(script().execute("p", 0).bind("", "a").sync());
    assert!(heard.starts_with("C[DEALLOCATE ALL.] E["), "{heard}");
    assert!(heard.contains("C26000."), "{heard}");
}

/// A cache of one, and a batch that needs three: none is closed while it is needed.
#[test]
fn what_is_needed_is_not_evicted() {
    let mut pair = prepared(1);
    let mut batch = script();
    for (name, text) in [("a", "select 1"), ("b", "select 2"), ("c", "select 3")] {
        batch = batch.parse(name, text).bind(name, name);
    }
    let batch = batch.execute("a", 0).execute("b", 0).execute("c", 0).sync();
    let answer = pair.ask(batch);
    assert_eq!(answer.matches("C[SELECT").count(), 3, "{answer}");
    assert_eq!(pair.server.prepared(), 3);
    pair.backend.log.clear();
    pair.ask(script().parse("d", "select 4").sync());
    assert_eq!(pair.backend.log, b"CCCPDS", "the three make room now");
    assert_eq!(pair.server.prepared(), 1);
}

/// Lowering the limit does nothing until the next Parse; zero leaves every name alone.
#[test]
fn the_limit_can_change_at_any_time() {
    let mut pair = prepared(10);
    pair.ask(script().parse("a", "select 1").parse("b", "select 2").sync());
    pair.rules.prepared_max = 1;
    pair.ask(script().run("a").sync());
    assert_eq!(pair.server.prepared(), 2);
    pair.ask(script().parse("c", "select 3").sync());
    assert_eq!(pair.server.prepared(), 1);
    pair.rules.prepared_max = 0;
    let answer = pair.ask(script().run("a").sync());
    assert!(answer.contains("prepared statement \\\"a\\\" does not exist"), "{answer}");
    pair.rules.prepared_max = 10;
    assert!(pair.ask(script().run("a").sync()).starts_with("2["));
}

/// In session mode, or without a cache, the bytes are not touched at all.
#[test]
fn without_sharing_every_byte_passes() {
    let stream =
        script().parse("a", "select 1").run("a").describe(Namespace::Statement, "x").sync().0;
    for rules in [
        Rules { mode: Mode::Session, ..Rules::default() },
        Rules { prepared_max: 0, ..Rules::default() },
    ] {
        for size in 1..=stream.len() {
            let mut pair = Pair::new(rules);
            let (mut passed, mut heard) = (Vec::new(), Vec::new());
            for bytes in stream.chunks(size) {
                heard.extend(pair.say(bytes));
                pair.flow.to_server.copy_to(bytes, &mut passed);
            }
            assert_eq!(passed, stream, "cut every {size}");
            let said = std::mem::take(&mut pair.backend.out);
            heard.extend(pair.hear(&said).1);
            assert_eq!(heard, Backend::new(&[]).answer(&stream));
            assert!(pair.is_free());
        }
    }
}

/// Nobody looks into a broken message but the server, which says what is wrong with it.
#[test]
fn broken_messages_go_to_the_server() {
    for (tag, body) in [(b'P', &b"s"[..]), (b'B', b"p\0s"), (b'D', b"Xx\0"), (b'C', b"")] {
        let mut pair = pair();
        let stream = script().message(tag, body).0;
        let Pair { client, server, statements, rules, flow, .. } = &mut pair;
        let said = from_client(client, server, statements, rules, &stream, flow);
        assert_eq!(said, Ok(Said::More));
        assert!(flow.to_server.is_whole(stream.len()), "{}", tag.escape_ascii());
        pair.hear(&error(b"ERROR"));
        pair.say(&script().sync().0);
        pair.hear(&ready(Status::Idle));
        assert!(pair.is_free());
    }
}

/// A big body is passed on as it comes: only a Bind's names are ever kept.
#[test]
fn big_messages_are_not_kept() {
    let mut pair = pair();
    pair.ask(script().parse("s", "select 1").sync());
    let big = vec![b'x'; 100_000];
    let stream = script().message(b'B', &[b"\0s\0\0\0\0\x01".as_slice(), &big].concat()).0;
    let mut passed = 0;
    for bytes in stream.chunks(1000) {
        let Pair { client, server, statements, rules, flow, .. } = &mut pair;
        let said = from_client(client, server, statements, rules, bytes, flow);
        assert_eq!(said, Ok(Said::More));
        passed += flow.to_server.len();
        assert!(flow.to_server.len() >= bytes.len(), "nothing is held back");
    }
    assert_eq!(passed, stream.len() + b"PGBOUNCER_1".len() - b"s".len());
}

/// A client that piles up what we answer ourselves, behind a query that takes for ever, is slowed
/// down by the server like any other.
#[test]
fn nothing_piles_up_without_end() {
    let mut pair = pair();
    pair.ask(script().parse("s", "select 1").sync());
    pair.say(&script().query("select pg_sleep(1e9)").0);
    pair.backend.out.clear();
    pair.backend.log.clear();
    for _ in 0..5000 {
        pair.say(&script().close(Namespace::Statement, "s").parse("s", "select 1").0);
    }
    assert!(pair.backend.log.len() > 5000, "only {} were sent", pair.backend.log.len());
}

/// Whatever comes from either side, there is a verdict.
#[test]
fn garbage_is_judged() {
    let mut dice = model::Dice(7);
    for _ in 0..3000 {
        let mut pair = prepared(2);
        for _ in 0..8 {
            let mut bytes = Vec::new();
            for _ in 0..dice.under(6) {
                let tag = dice.pick(b"PBDECSHQFdcfZTDC123nsItVGHWENAS");
                let body: Vec<u8> =
                    (0..dice.under(12)).map(|_| dice.pick(b"\0\0SPabIZ\x01")).collect();
                let len = body.len() + 4 + dice.under(30) / 29;
                bytes.push(tag);
                bytes.extend(u32::try_from(len).expect("short").to_be_bytes());
                bytes.extend(body);
            }
            let Pair { client, server, statements, rules, flow, .. } = &mut pair;
            let fault = match dice.under(4) {
                0 => from_server(server, Some(client), statements, rules, &bytes, flow).is_err(),
                1 => from_server(server, None, statements, rules, &bytes, flow).is_err(),
                2 => unlinked(client, &bytes).is_err(),
                _ => from_client(client, server, statements, rules, &bytes, flow).is_err(),
            };
            if fault {
                break;
            }
        }
    }
}

/// There are a hundred thousand of them.
#[test]
fn an_idle_client_is_small() {
    assert!(size_of::<ClientSide>() <= 88, "{}", size_of::<ClientSide>());
    fn moves<T: Send>() {}
    moves::<ServerSide>();
    moves::<ClientSide>();
}
