//! Sequences of messages against the relay: two clients, one server, any bytes in any pieces, and
//! well-formed messages oftener than chance would make them. The server goes from one client to
//! the other only when the relay says that it is free.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use session::{ClientSide, Flow, Mode, Own, Rules, ServerSide, Statements, Ties, Tracked, Unlinked, Vars};

#[derive(Arbitrary, Debug)]
struct Play {
    mode: u8,
    prepared: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Client { tag: u8, body: Vec<u8>, cut: u8 },
    Server { tag: u8, body: Vec<u8>, cut: u8 },
    ClientBytes(Vec<u8>),
    ServerBytes(Vec<u8>),
    Ready(u8),
    Own(u8),
    Other,
}

const CLIENT: &[u8] = b"QPBDECSHFdcfXp";
const SERVER: &[u8] = b"TDCZEN123tnsIGHWAVScd";

fuzz_target!(|play: Play| {
    let mode = [Mode::Session, Mode::Transaction, Mode::Statement][usize::from(play.mode % 3)];
    let rules = Rules {
        mode,
        prepared_max: u32::from(play.prepared % 4),
        prepared_bytes: 1 << 16,
        packet_max: 1 << 20,
        pqexec: true,
        follows: play.mode >= 128,
        refused: Ties::default(),
        reports: play.mode % 5 == 0,
    };
    let vars = Vars::new(&Tracked::default());
    let mut statements = Statements::new(
        Arc::new(session::Registry::new(42)),
        session::read,
    );
    let mut clients = [ClientSide::new(vars.clone()), ClientSide::new(vars.clone())];
    let mut server = ServerSide::new(vars);
    let mut flow = Flow::default();
    let mut linked: Option<usize> = None;
    let mut turn = 0;
    for step in &play.steps {
        match step {
            Step::Other => turn = 1 - turn,
            Step::Own(kind) => {
                if linked.is_none() && server.is_at_rest() && !server.is_spoilt() {
                    let own = [Own::Set, Own::Check, Own::Reset, Own::Connect];
                    let mut out = Vec::new();
                    server.own(own[usize::from(kind % 4)], b"select 1", &mut out);
                }
            }
            Step::Client { .. } | Step::ClientBytes(_) => {
                let bytes = match step {
                    Step::Client { tag, body, cut } => message(CLIENT, *tag, body, *cut),
                    Step::ClientBytes(bytes) => bytes.clone(),
                    _ => continue,
                };
                let mut from = 0;
                if linked.is_none() {
                    if !server.is_at_rest() || server.is_spoilt() {
                        continue;
                    }
                    match session::unlinked(&mut clients[turn], &bytes) {
                        Ok(Unlinked::Server { from: at }) => from = at,
                        Ok(Unlinked::Nothing) => continue,
                        Ok(Unlinked::Terminate) | Err(_) => return,
                    }
                    linked = Some(turn);
                }
                if linked != Some(turn) || clients[turn].is_held() {
                    continue;
                }
                let client = &mut clients[turn];
                let input = &bytes[from..];
                let said =
                    session::from_client(client, &mut server, &mut statements, &rules, input, &mut flow);
                check(&flow, input);
                if said.is_err() {
                    return;
                }
            }
            Step::Server { .. } | Step::ServerBytes(_) | Step::Ready(_) => {
                let bytes = match step {
                    Step::Server { tag, body, cut } => message(SERVER, *tag, body, *cut),
                    Step::ServerBytes(bytes) => bytes.clone(),
                    Step::Ready(status) => {
                        vec![b'Z', 0, 0, 0, 5, b"ITE"[usize::from(status % 3)]]
                    }
                    _ => continue,
                };
                let client = linked.map(|index| &mut clients[index]);
                let heard =
                    session::from_server(&mut server, client, &mut statements, &rules, &bytes, &mut flow);
                check(&flow, &bytes);
                flow.owned.clear();
                if heard.is_err() {
                    return;
                }
            }
        }
        if let Some(index) = linked
            && server.is_free(&clients[index])
        {
            assert!(!server.owes() && !server.in_transaction() && !server.is_spoilt());
            linked = None;
        }
    }
});

/// What is passed on lies within what came.
fn check(flow: &Flow, input: &[u8]) {
    for pieces in [&flow.to_server, &flow.to_client] {
        let total: usize = pieces.iter(input).map(<[u8]>::len).sum();
        assert_eq!(total, pieces.len());
    }
}

fn message(tags: &[u8], tag: u8, body: &[u8], cut: u8) -> Vec<u8> {
    let mut out = vec![tags[usize::from(tag) % tags.len()]];
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
    // Now and then only a part comes.
    if cut > 200 {
        out.truncate(usize::from(cut) % out.len().max(1));
    }
    out
}
